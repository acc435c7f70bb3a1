// What an engine holds and moves, compared with what its estimate says: for tests that differ in the shapes they try.
#pragma once
#include <gtest/gtest.h>

#include <chrono>
#include <span>
#include <string>

#include "tests/support/rank_group.h"
#include "tests/zero/model.h"

namespace shardcomm::testing {

struct Shape {
  const char* name;
  ModelShape model;
  ZeroOptions options;
};

// Makes a step without norm and loss, whose operations would count as traffic too; complete when it returns.
inline void bare_step(ZeroEngine& engine, AdamW& adam, Model& model, uint64_t step) {
  model.run(step, 0, 2, 2);
  must(engine.finish_step(StreamRef::caller()));
  must(adam.step(1e-3f));
  // The gathers that step() has enqueued count as traffic of this step.
  must(engine.synchronize(std::chrono::steady_clock::now() + std::chrono::seconds(20)));
}

// Peak and traffic of each of some steps are those of the estimate, and nothing is left in flight between them.
inline void expect_counts_of_estimate(RankContext& rank, std::span<const Shape> shapes) {
  Communicator comm = rank.communicator();
  for (const Shape& shape : shapes) {
    SCOPED_TRACE(std::string(shape.name) + " stage " + std::to_string(shape.options.stage) + " prefetch " +
                 std::to_string(shape.options.prefetch_units) + " buckets " +
                 std::to_string(shape.options.bucket_bytes) + " limit " +
                 std::to_string(shape.options.gathered_bytes_limit));
    const auto units = model_units(shape.model);
    const ZeroEstimate estimate = must(estimate_zero(units, rank.size(), shape.options));
    ZeroEngine engine = must(ZeroEngine::create(comm, units, shape.options));
    AdamW adam = must(AdamW::create(engine, {}));
    must(fill_with_noise(engine));
    Model model(engine, shape.model, StreamRef::caller());
    bare_step(engine, adam, model, 0);
    EXPECT_EQ(engine.memory().peak_bytes, estimate.peak_bytes);
    for (const uint64_t step : {1u, 2u, 3u}) {
      engine.reset_peak();
      const TrafficCounters before = comm.traffic();
      bare_step(engine, adam, model, step);
      const TrafficCounters after = comm.traffic();
      EXPECT_EQ(after.bytes_sent - before.bytes_sent, estimate.bytes_per_step);
      EXPECT_EQ(engine.memory().peak_bytes, estimate.peak_bytes);
      const MemoryReport idle = engine.memory();
      EXPECT_EQ(idle.gathered_bytes, 0u);
      EXPECT_EQ(idle.unreduced_bytes, 0u);
      EXPECT_EQ(idle.live_bytes, idle.parameter_bytes + idle.gradient_bytes + idle.optimizer_bytes);
      // Few operations: a gather or two and a reduction a unit that fits a bucket, however many parameters it has.
      if (shape.options.bucket_bytes == ZeroOptions().bucket_bytes) {
        EXPECT_LE(after.operations - before.operations, 4 * units.size());
      }
    }
  }
}

}  // namespace shardcomm::testing
