// Contexts, meeting places, and ranks as threads.
#include "tests/support/rank_group.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <thread>

#include "tests/support/rank_place.h"
#include "tools/free_port.h"

namespace shardcomm::testing {
namespace {

constexpr int kPortsHeld = 4;  // communicators that one run may make over tcp

thread_local Rank current_rank = -1;

RankReport run_threads(const RankContext::Place& place, const std::function<void(RankContext&)>& function,
                       const RankRun& run) {
  RankReport report;
  report.published.resize(static_cast<size_t>(place.size));
  std::mutex mutex;
  std::condition_variable changed;
  int running = place.size;

  FailureListener listener([&](const Assertion& failure) {
    const std::lock_guard lock(mutex);
    report.failures.push_back({current_rank, failure.text});
  });
  ::testing::TestEventListeners& listeners = ::testing::UnitTest::GetInstance()->listeners();
  listeners.Append(&listener);
  install_stack_handler();
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < place.size; ++rank) {
    threads.emplace_back([&, rank] {
      current_rank = rank;
      RankContext context(place, rank);
      context.on_publish = [&, rank](std::string_view text) {
        const std::lock_guard lock(mutex);
        report.published[static_cast<size_t>(rank)] += text;
      };
      run_one_rank(context, function);
      const std::lock_guard lock(mutex);
      --running;
      changed.notify_one();
    });
  }
  std::unique_lock lock(mutex);
  if (!changed.wait_for(lock, run.deadline, [&] { return running == 0; })) {
    // Threads cannot be killed, and what they use is on this stack.
    std::fprintf(stderr, "%d of %d rank threads still run after %lld ms; their stacks:\n", running, place.size,
                 static_cast<long long>(run.deadline.count()));
    request_stacks(getpid());
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    std::fflush(nullptr);
    std::abort();
  }
  lock.unlock();
  for (std::thread& thread : threads) thread.join();
  listeners.Release(&listener);
  return report;
}

}  // namespace

void FailureListener::OnTestPartResult(const ::testing::TestPartResult& result) {
  if (result.failed())
    sink_({result.file_name() != nullptr ? result.file_name() : "", result.line_number(), result.message()});
}

void run_one_rank(RankContext& context, const std::function<void(RankContext&)>& function) {
  SCOPED_TRACE("rank " + std::to_string(context.rank()) + " of " + std::to_string(context.size()) + ", " +
               std::string(name(context.mode())));
  try {
    function(context);
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
  }
}

std::vector<RankMode> rank_modes() { return {RankMode::kThreads, RankMode::kProcesses}; }

std::string_view name(RankMode mode) noexcept { return mode == RankMode::kThreads ? "threads" : "processes"; }

int RankContext::size() const noexcept { return place_.size; }
RankMode RankContext::mode() const noexcept { return place_.mode; }

std::string RankContext::next_store_uri() {
  const int meeting = meetings_++;
  if (place_.mode == RankMode::kThreads) return "local://" + place_.name + "-" + std::to_string(meeting);
  if (place_.meeting == Meeting::kFile) return "file://" + place_.name + "/" + std::to_string(meeting);
  if (meeting >= kPortsHeld)
    throw std::runtime_error("a run over tcp has ports for 4 communicators; use Meeting::kFile");
  return "tcp://127.0.0.1:" + std::to_string(place_.ports[static_cast<size_t>(meeting)]);
}

Result<Communicator> RankContext::try_communicator(std::string_view options) {
  std::string text = "timeout_ms=20000,init_timeout_ms=20000";
  if (!options.empty()) (text += ",") += options;
  SHARDCOMM_TRY_ASSIGN(const Options parsed, Options::parse(text));
  SHARDCOMM_TRY_ASSIGN(std::unique_ptr<Store> store, open_store(next_store_uri()));
  stores_.push_back(std::move(store));
  return Communicator::create(*stores_.back(), {.rank = rank_, .size = place_.size}, parsed);
}

Communicator RankContext::communicator(std::string_view options) {
  Result<Communicator> made = try_communicator(options);
  if (!made.ok()) throw std::runtime_error("no communicator: " + made.status().to_string());
  return std::move(made).value();
}

void RankContext::publish(std::string_view text) { on_publish(text); }

RankReport run_ranks(int size, RankMode mode, const std::function<void(RankContext&)>& function, const RankRun& run) {
  static std::atomic<int> runs{0};
  const std::string unique = "ranks-" + std::to_string(getpid()) + "-" + std::to_string(runs++);
  RankContext::Place place{.size = size, .mode = mode, .meeting = run.meeting, .name = unique, .ports = {}};
  if (mode == RankMode::kThreads) return run_threads(place, function, run);

  std::vector<tools::FreePort> ports;  // held until the run is over
  if (run.meeting == Meeting::kTcp) {
    for (int i = 0; i < kPortsHeld; ++i) {
      Result<tools::FreePort> port = tools::FreePort::reserve();
      if (!port.ok()) throw std::runtime_error(port.status().to_string());
      place.ports.push_back(port->port());
      ports.push_back(std::move(port).value());
    }
  } else {
    place.name = std::filesystem::temp_directory_path() / unique;
    for (int i = 0; i < kPortsHeld; ++i) std::filesystem::create_directories(place.name + "/" + std::to_string(i));
  }
  RankReport report = run_processes(place, function, run);
  std::error_code ignored;
  if (run.meeting == Meeting::kFile) std::filesystem::remove_all(place.name, ignored);
  return report;
}

}  // namespace shardcomm::testing
