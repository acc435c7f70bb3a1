// What the flight recorder adds to one operation: two readings of its clock and the stores of a call and a run, walking
// through the whole ring as a program does.
#include <benchmark/benchmark.h>

#include "flight/flight.h"
#include "flight/ticks.h"

namespace shardcomm {
namespace {

std::unique_ptr<FlightRecorder> make_recorder() {
  Options options;
  options.dump_signal = "off";
  auto recorder = FlightRecorder::create({}, options);
  return recorder.ok() ? std::move(recorder).value() : nullptr;
}

void operation(benchmark::State& state, std::string_view label) {
  const auto recorder = make_recorder();
  if (recorder == nullptr) return state.SkipWithError("no recorder");
  uint64_t epoch = 0;
  for (auto _ : state) {
    const uint64_t now = recorder->now();
    recorder->enqueue(++epoch, {.dtype = DType::kF32, .count = 1024}, label, now);
    recorder->start(epoch, now);
    recorder->finish(epoch, Code::kOk);
  }
}

void clock_reading(benchmark::State& state, bool of_counter) {
  for (auto _ : state) benchmark::DoNotOptimize(read_ticks(of_counter));
}

BENCHMARK_CAPTURE(operation, unlabelled, "");
BENCHMARK_CAPTURE(operation, labelled, "gather transformer.h.11");
BENCHMARK_CAPTURE(clock_reading, counter, true);
BENCHMARK_CAPTURE(clock_reading, steady, false);

}  // namespace
}  // namespace shardcomm

BENCHMARK_MAIN();
