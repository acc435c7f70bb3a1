// Optimizers that are not part of the library: the same bits at every stage and world size where the sums of gradients
// are equal, and the bits of AdamW where the arithmetic is AdamW's.
#include <gtest/gtest.h>

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>

#include "examples/lion.h"
#include "shardcomm/checkpoint.h"
#include "tests/support/rank_group.h"
#include "tests/zero/model.h"

namespace shardcomm::testing {
namespace {

const StreamRef kCaller = StreamRef::caller();
constexpr size_t kSamples = 4;  // a step, for 1, 2 or 4 ranks

std::vector<UnitSpec> units_of(DType dtype) {
  return {{"in", {{.name = "w", .shape = {33, 20}, .dtype = dtype}, {.name = "b", .shape = {33}, .dtype = dtype}}},
          {"frozen", {{.name = "w", .shape = {17}, .dtype = dtype, .trainable = false}}},
          {"out",
           {{.name = "w", .shape = {70, 10}, .dtype = dtype, .decay_factor = 0},
            {.name = "tied", .shape = {33, 20}, .dtype = dtype, .tied_to = "in.w"}}}};
}

// Multiples of 1/64 below 2 in magnitude: sums of them are exact in f32, so they do not depend on who adds what first.
float gradient_of(float value, size_t sample, size_t i, uint64_t step) {
  return std::round(32 * (value + noise("g", step * kSamples + sample, i))) / 64;
}

// One step on this rank's samples, up to final gradients.
void accumulate(ZeroEngine& engine, uint64_t step) {
  const auto rank = static_cast<size_t>(engine.communicator().rank());
  const size_t share = kSamples / static_cast<size_t>(engine.communicator().size());
  for (UnitId unit = 0; unit < engine.units().size(); ++unit) {
    must(engine.before(unit, Pass::kForward, kCaller));
    must(engine.after(unit, Pass::kForward, kCaller));
  }
  for (auto unit = static_cast<UnitId>(engine.units().size()); unit-- > 0;) {
    must(engine.before(unit, Pass::kBackward, kCaller));
    for (const ParameterView& view : engine.parameters(unit)) {
      std::vector<float> terms = values_of(view), sums(view.count);
      for (size_t sample = rank * share; sample < (rank + 1) * share; ++sample) {
        for (size_t i = 0; i < view.count; ++i) sums[i] += gradient_of(terms[i], sample, i, step);
      }
      add_to_gradient(view, sums);
    }
    must(engine.after(unit, Pass::kBackward, kCaller));
  }
  must(engine.finish_step(kCaller));
}

// Masters by parameter and element, of all ranks.
using Masters = std::map<std::pair<UnitId, uint32_t>, std::vector<float>>;
struct Outcome {
  std::vector<std::vector<float>> values;
  Masters masters;
  bool operator==(const Outcome&) const = default;
};

// What `take_steps` makes of the parameters, on `ranks` ranks.
Outcome outcome_of(int ranks, int stage, DType dtype, const std::function<void(ZeroEngine&)>& take_steps,
                   size_t bucket_bytes = ZeroOptions().bucket_bytes) {
  Outcome outcome;
  std::mutex mutex;
  run_ranks(ranks, RankMode::kThreads, [&](RankContext& context) {
    Communicator comm = context.communicator();
    const ZeroOptions options{.stage = stage, .bucket_bytes = bucket_bytes, .poison_freed = true};
    ZeroEngine engine = must(ZeroEngine::create(comm, units_of(dtype), options));
    must(fill_with_noise(engine));
    take_steps(engine);
    const auto values = all_parameters(engine);
    const std::lock_guard lock(mutex);
    if (outcome.values.empty()) outcome.values = values;
    EXPECT_TRUE(outcome.values == values) << "rank " << context.rank() << " has other values";
    for (const ShardPiece& piece : engine.pieces()) {
      if (piece.master == nullptr) continue;
      std::vector<float>& masters = outcome.masters[{piece.unit, piece.parameter}];
      masters.resize(std::max(masters.size(), piece.offset + piece.count));
      std::copy_n(piece.master, piece.count, masters.data() + piece.offset);
    }
  });
  return outcome;
}

void take_lion_steps(ZeroEngine& engine) {
  Lion lion(engine, {.weight_decay = 0.1f});
  for (uint64_t step = 0; step < 6; ++step) {
    accumulate(engine, step);
    must(lion.step(0.01f));
  }
}

TEST(OwnOptimizer, GivesTheSameBitsAtAllStagesAndWorldSizes) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Outcome start = outcome_of(1, 0, dtype, [](ZeroEngine&) {});
    const Outcome expected = outcome_of(1, 0, dtype, take_lion_steps);
    ASSERT_EQ(expected.values.size(), 5u);
    for (size_t p = 0; p < expected.values.size(); ++p) {
      EXPECT_EQ(expected.values[p] == start.values[p], p == 2) << "parameter " << p;  // frozen
    }
    for (const int ranks : {1, 2, 4}) {
      for (const int stage : {0, 1, 2, 3}) {
        EXPECT_TRUE(outcome_of(ranks, stage, dtype, take_lion_steps) == expected)
            << name(dtype) << ", stage " << stage << ", " << ranks << " ranks";
        EXPECT_TRUE(outcome_of(ranks, stage, dtype, take_lion_steps, 512) == expected)  // in several pieces
            << name(dtype) << ", stage " << stage << ", " << ranks << " ranks, parameters cut";
      }
    }
  }
}

// Whole pages, so that stage 3 reads the values in their owners' memory, where the update writes them.
TEST(OwnOptimizer, GivesTheSameBitsOnMosaics) {
  const std::vector<UnitSpec> units = {{"in", {{.name = "w", .shape = {1024, 8}}}},
                                       {"out", {{.name = "w", .shape = {1024, 8}, .dtype = DType::kBF16}}}};
  run_ranks(2, RankMode::kThreads, [&](RankContext& rank) {
    Communicator comm = rank.communicator();
    std::optional<std::vector<std::vector<float>>> expected;
    for (const bool mosaic : {false, true}) {
      ZeroEngine engine = must(ZeroEngine::create(comm, units, {.stage = 3, .mosaic = mosaic}));
      must(fill_with_noise(engine));
      take_lion_steps(engine);
      const auto values = all_parameters(engine);
      if (!expected) expected = values;
      EXPECT_TRUE(values == *expected);
      reinterpret_cast<float*>(engine.pieces()[0].value)[0] += 1;
      EXPECT_EQ(engine.before(0, Pass::kForward, kCaller).code(), Code::kFailedPrecondition);
    }
  });
}

// Adam as a trainer of one file has it, but for where its numbers lie.
class PlainAdam {
 public:
  explicit PlainAdam(ZeroEngine& engine)
      : engine_(engine), m_(engine.optimized_count()), v_(engine.optimized_count()) {}

  void step(float rate, float gradient_scale) {
    ++t_;
    const auto m_correction = static_cast<float>(1 / (1 - std::pow(static_cast<double>(kBeta1), t_)));
    const auto v_correction = static_cast<float>(1 / std::sqrt(1 - std::pow(static_cast<double>(kBeta2), t_)));
    must(engine_.begin_update());
    for (const ShardPiece& piece : engine_.pieces()) {
      if (piece.master == nullptr) continue;
      const float decay = kDecay * engine_.units()[piece.unit].parameters[piece.parameter].decay_factor;
      for (size_t i = 0; i < piece.count; ++i) {
        float& m = m_[piece.state_offset + i];
        float& v = v_[piece.state_offset + i];
        const float g = piece.gradient[i] * gradient_scale;
        m = kBeta1 * m + (1 - kBeta1) * g;
        v = kBeta2 * v + (1 - kBeta2) * (g * g);
        const float direction = m * m_correction / (std::sqrt(v) * v_correction + kEps);
        piece.master[i] = piece.master[i] * (1 - rate * decay) - rate * direction;
      }
    }
    must(engine_.publish());
    must(engine_.zero_gradients());
  }

  static constexpr float kBeta1 = 0.9f, kBeta2 = 0.95f, kEps = 1e-8f, kDecay = 0.1f;

 private:
  ZeroEngine& engine_;
  std::vector<float> m_, v_;
  int t_ = 0;
};

TEST(OwnOptimizer, GivesTheBitsOfAdamWWithItsArithmetic) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int stage : {0, 1, 2, 3}) {
      const Outcome expected = outcome_of(2, stage, dtype, [](ZeroEngine& engine) {
        AdamW adam = must(AdamW::create(engine, {.beta1 = PlainAdam::kBeta1,
                                                 .beta2 = PlainAdam::kBeta2,
                                                 .eps = PlainAdam::kEps,
                                                 .weight_decay = PlainAdam::kDecay}));
        for (uint64_t step = 0; step < 5; ++step) {
          accumulate(engine, step);
          must(adam.step(0.02f, 0.75f));
        }
      });
      const Outcome own = outcome_of(2, stage, dtype, [](ZeroEngine& engine) {
        PlainAdam adam(engine);
        for (uint64_t step = 0; step < 5; ++step) {
          accumulate(engine, step);
          adam.step(0.02f, 0.75f);
        }
      });
      EXPECT_TRUE(own == expected) << name(dtype) << ", stage " << stage;
    }
  }
}

// One unit after the other, with published ones on their way, is the same update.
TEST(OwnOptimizer, MayPublishUnitByUnit) {
  const auto update = [](ZeroEngine& engine, bool by_unit) {
    accumulate(engine, 0);
    must(engine.begin_update());
    for (auto unit = static_cast<UnitId>(engine.units().size()); unit-- > 0;) {
      for (const ShardPiece& piece : engine.pieces()) {
        if (piece.unit != unit || piece.master == nullptr) continue;
        for (size_t i = 0; i < piece.count; ++i) piece.master[i] -= 0.1f * piece.gradient[i];
      }
      if (by_unit) must(engine.publish(unit));
    }
    must(engine.publish());
    must(engine.zero_gradients());
  };
  for (const int stage : {0, 1, 2, 3}) {
    EXPECT_TRUE(outcome_of(2, stage, DType::kBF16, [&](ZeroEngine& engine) { update(engine, true); }) ==
                outcome_of(2, stage, DType::kBF16, [&](ZeroEngine& engine) { update(engine, false); }))
        << "stage " << stage;
  }
}

// What a bf16 value cannot hold stays in its master: small updates add up, and a checkpoint has them.
TEST(OwnOptimizer, LosesNoUpdatesOfBf16Parameters) {
  const auto directory = std::filesystem::temp_directory_path() / ("own-optimizer-" + std::to_string(getpid()));
  const auto set_masters = [](ZeroEngine& engine, float value) {
    must(engine.begin_update());
    for (const ShardPiece& piece : engine.pieces()) {
      if (piece.master != nullptr) std::fill_n(piece.master, piece.count, value);
    }
    must(engine.publish());
  };
  for (const int stage : {0, 1, 2, 3}) {
    std::filesystem::remove_all(directory);
    run_ranks(2, RankMode::kThreads, [&](RankContext& rank) {
      Communicator comm = rank.communicator("log=error");
      ZeroEngine engine = must(ZeroEngine::create(comm, units_of(DType::kBF16), {.stage = stage}));
      AdamW adam = must(AdamW::create(engine, {}));
      must(fill_with_noise(engine));
      for (const float value : {2.0f, 1.001953125f}) {  // the second is between two bf16 numbers
        set_masters(engine, value);
        const std::string path = must(save_checkpoint(engine, adam, directory, 1, "{}"));
        set_masters(engine, 7);
        must(load_checkpoint(engine, adam, path));
        for (const ShardPiece& piece : engine.pieces()) {
          if (piece.master == nullptr) continue;
          ASSERT_EQ(std::vector<float>(piece.master, piece.master + piece.count),
                    std::vector<float>(piece.count, value));
        }
        EXPECT_EQ(all_parameters(engine)[0][5], bf16_to_float(float_to_bf16(value)));
      }
      set_masters(engine, 1);
      for (int i = 0; i < 1024; ++i) {  // each is an eighth of what a bf16 value near 1 can show
        must(engine.begin_update());
        for (const ShardPiece& piece : engine.pieces()) {
          for (size_t k = 0; piece.master != nullptr && k < piece.count; ++k) piece.master[k] += 1.0f / 1024;
        }
        must(engine.publish());
      }
      EXPECT_EQ(all_parameters(engine)[0][5], 2);
    });
  }
  std::filesystem::remove_all(directory);
}

TEST(OwnOptimizer, IsCountedAsLongAsItLives) {
  run_ranks(2, RankMode::kThreads, [](RankContext& rank) {
    Communicator comm = rank.communicator();
    std::optional<ZeroEngine> engine = must(ZeroEngine::create(comm, units_of(DType::kF32), {.stage = 3}));
    const size_t before = engine->memory().optimizer_bytes;
    {
      const Lion lion(*engine, {});
      EXPECT_EQ(engine->memory().optimizer_bytes, before + engine->optimized_count() * sizeof(float));
      EXPECT_GE(engine->memory().peak_bytes, engine->memory().live_bytes);
    }
    EXPECT_EQ(engine->memory().optimizer_bytes, before);
    for (const ShardPiece& piece : engine->pieces()) {
      EXPECT_LE(piece.master == nullptr ? 0 : piece.state_offset + piece.count, engine->optimized_count());
    }
    const Lion survivor(*engine, {});
    engine.reset();
  });
}

}  // namespace
}  // namespace shardcomm::testing
