// How time is taken; shared with the programs of peers (bench/peers), so that all are timed alike.
//
// A sample is a number of calls one after another, divided by that number: 1, or where a call takes less than 2 us as
// many as take 20 us, so that reading the clock (some 30 ns) does not count. Calls follow each other without a barrier
// between them, as in a training step; a collective waits for its peers itself. The samples of a size come in blocks;
// a block begins with a barrier and a call, neither of which is timed. Between the blocks the machine's limits are
// measured (limits.h), so that both see the same weather. Each sample counts as long as on its slowest rank.
#pragma once
#include <algorithm>
#include <chrono>
#include <cmath>

namespace shardcomm::tools {

constexpr double kShortCallUs = 2;
constexpr double kShortSampleUs = 20;
constexpr double kMostBatch = 1000;
// What each size is given where the number of samples is not: as many as take a quarter of a second, in these bounds.
constexpr double kTimeOfSizeUs = 250'000;
constexpr int kLeastSamples = 20;
constexpr int kMostSamples = 1000;
constexpr int kBlocks = 5;
constexpr int kTrialCalls = 5;  // the shortest of which is taken as the time of a call, before it is timed

inline double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Calls of a sample, for calls that take so long.
inline int batch_for(double call_us) {
  if (call_us >= kShortCallUs) return 1;
  return static_cast<int>(std::clamp(std::ceil(kShortSampleUs / std::max(call_us, 1e-3)), 1.0, kMostBatch));
}

inline int samples_for(double call_us, int batch) {
  const double samples = kTimeOfSizeUs / (std::max(call_us, 1e-3) * batch);
  return static_cast<int>(std::clamp<double>(samples, kLeastSamples, kMostSamples));
}

}  // namespace shardcomm::tools
