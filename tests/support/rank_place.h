// What rank_group.cc and rank_processes.cc share; tests include rank_group.h.
#pragma once
#include <gtest/gtest.h>

#include <mutex>

#include "tests/support/rank_group.h"

namespace shardcomm::testing {

// Where the ranks of one run meet. Copied into forked processes by the fork itself.
struct RankContext::Place {
  int size = 1;
  RankMode mode = RankMode::kThreads;
  Meeting meeting = Meeting::kTcp;
  std::string name;        // threads: of the local store; file: the directory
  std::vector<int> ports;  // tcp: one a meeting, held by bound sockets of the parent
};

// One failed assertion, as GoogleTest tells its listeners.
struct Assertion {
  std::string file;
  int line = 0;
  std::string text;
};

// Hands every failed assertion to `sink`, on the thread that failed.
class FailureListener : public ::testing::EmptyTestEventListener {
 public:
  explicit FailureListener(std::function<void(const Assertion&)> sink) : sink_(std::move(sink)) {}
  void OnTestPartResult(const ::testing::TestPartResult& result) override;

 private:
  std::function<void(const Assertion&)> sink_;
};

// Runs `function`; what it throws becomes a failed assertion.
void run_one_rank(RankContext& context, const std::function<void(RankContext&)>& function);

RankReport run_processes(const RankContext::Place& place, const std::function<void(RankContext&)>& function,
                         const RankRun& run);

// Makes every thread of this process write its stack to stderr when it gets kStackSignal.
void install_stack_handler();
// Asks every thread of the process for its stack.
void request_stacks(int process_id);

}  // namespace shardcomm::testing
