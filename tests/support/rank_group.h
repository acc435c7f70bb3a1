// Runs a function on N ranks and gathers what went wrong on each.
//
//   for (RankMode mode : rank_modes())
//     run_ranks(4, mode, [](RankContext& rank) {
//       Communicator comm = rank.communicator("timeout_ms=5000");
//       EXPECT_EQ(comm.rank(), rank.rank());
//     });
//
// Threads share one process (for ThreadSanitizer and quick runs) and meet over a local store. Processes are forked, so
// that they can be killed, and meet over tcp or a directory; forking needs a parent without other threads.
// GoogleTest failures of any rank are failures of the test, each with its rank, also when the rank is a process.
// Only the main thread may skip a test.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shardcomm/communicator.h"

namespace shardcomm::testing {

enum class RankMode : uint8_t { kThreads, kProcesses };
enum class Meeting : uint8_t { kTcp, kFile };  // of processes

// Every mode that this build can run.
std::vector<RankMode> rank_modes();
std::string_view name(RankMode mode) noexcept;  // "threads", "processes"

// How much longer than usual everything may take in this build: under a sanitizer, or an emulated processor.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || defined(SHARDCOMM_EMULATED)
inline constexpr int kPatience = 8;
#else
inline constexpr int kPatience = 1;
#endif

struct RankRun {
  // Then ranks that still run write their stacks to stderr and are killed.
  std::chrono::milliseconds deadline{60'000 * kPatience};
  std::vector<Rank> doomed = {};  // processes that may be killed, stop or exit badly without failing the test
  Meeting meeting = Meeting::kTcp;
};

class RankContext {
 public:
  struct Place;  // what all ranks of one run share
  RankContext(const Place& place, Rank rank) : place_(place), rank_(rank) {}

  Rank rank() const noexcept { return rank_; }
  int size() const noexcept;
  RankMode mode() const noexcept;

  // The first call on each rank meets the others' first call, the second their second, and so on. `options` go to
  // Options::parse over a timeout of 20 s. The store lives as long as the context. A failure ends the rank's function.
  Communicator communicator(std::string_view options = {});
  Result<Communicator> try_communicator(std::string_view options = {});
  // The meeting place of the next communicator, for those that open their own store. Counts as one call of the above.
  std::string next_store_uri();

  // Appends to RankReport::published, from where the test's own thread reads it.
  void publish(std::string_view text);

  // What the rank wrote, for run_ranks.
  std::function<void(std::string_view)> on_publish;

 private:
  const Place& place_;
  Rank rank_;
  int meetings_ = 0;
  std::vector<std::unique_ptr<Store>> stores_;
};

struct RankFailure {
  Rank rank = -1;  // -1: a thread that no rank's function is running on
  std::string text;
};

struct RankReport {
  std::vector<RankFailure> failures;   // already reported to GoogleTest
  std::vector<std::string> published;  // by rank
  std::vector<int> wait_status;        // by rank, of processes: as from waitpid
  bool ok() const noexcept { return failures.empty(); }
};

RankReport run_ranks(int size, RankMode mode, const std::function<void(RankContext&)>& function,
                     const RankRun& run = {});

}  // namespace shardcomm::testing
