// What the failure tests measure and compare: errors by code and words, moments across processes, a process's
// resources.
#pragma once
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "shardcomm/shardcomm.h"
#include "tests/support/live_threads.h"
#include "tests/support/rank_group.h"

namespace shardcomm::testing {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

// EXPECT_TRUE(failed_with(status, Code::kTimedOut, {"rank 2"})): that code, said once, and every word in the text.
inline ::testing::AssertionResult failed_with(const Status& status, Code code,
                                              const std::vector<std::string_view>& words) {
  const std::string text = status.to_string();
  if (status.code() != code)
    return ::testing::AssertionFailure() << "expected " << code_name(code) << ", got: " << text;
  const std::string clause = ": " + std::string(code_name(code)) + ": ";
  if ((": " + std::string(status.message())).find(clause) != std::string::npos)
    return ::testing::AssertionFailure() << "says " << code_name(code) << " twice: " << text;
  for (std::string_view word : words) {
    if (text.find(word) == std::string::npos)
      return ::testing::AssertionFailure() << "'" << word << "' is not in: " << text;
  }
  return ::testing::AssertionSuccess();
}

// Of a call that may fail when it is made or, on an asynchronous stream, later.
inline Status outcome(const Result<Work>& work, std::chrono::milliseconds patience = 10s) {
  return work.ok() ? work.value().synchronize(Clock::now() + patience) : work.status();
}

// Words that ranks share, be they threads or processes. Made before they start; all zero.
class SharedWords {
 public:
  static constexpr size_t kCount = 64;
  SharedWords()
      : words_(static_cast<std::atomic<int64_t>*>(
            mmap(nullptr, sizeof(int64_t) * kCount, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  SharedWords(const SharedWords&) = delete;
  SharedWords& operator=(const SharedWords&) = delete;
  ~SharedWords() { munmap(words_, sizeof(int64_t) * kCount); }
  std::atomic<int64_t>& operator[](size_t i) const { return words_[i]; }
  void mark_now(size_t i) const { words_[i].store(Clock::now().time_since_epoch().count()); }
  // Since mark_now; a huge time where there was none.
  std::chrono::milliseconds since(size_t i) const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now().time_since_epoch() -
                                                                 Clock::duration(words_[i].load()));
  }
  void await(size_t i, int64_t value) const {
    while (words_[i].load() < value) std::this_thread::sleep_for(1ms);
  }

 private:
  std::atomic<int64_t>* words_;
};

class Stopwatch {
 public:
  std::chrono::milliseconds elapsed() const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start_);
  }

 private:
  Clock::time_point start_ = Clock::now();
};

// Limits of time are for a machine that runs the test alone; sanitizers, emulation and a busy machine stretch them.
inline std::chrono::milliseconds stretched(std::chrono::milliseconds time) { return kPatience > 1 ? 4 * time : time; }

inline std::chrono::nanoseconds thread_cpu_time() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

inline std::set<std::string> files_in(const std::string& directory) {
  std::set<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) names.insert(entry.path().filename());
  return names;
}

// What a process holds.
struct Resources {
  size_t descriptors, threads, mappings;
  size_t shared_mappings;  // of shardcomm's segments
  static Resources now() {
    Resources found{files_in("/proc/self/fd").size(), live_threads(), 0, 0};
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      ++found.mappings;
      if (line.find("/memfd:shardcomm:") != std::string::npos) ++found.shared_mappings;
    }
    return found;
  }
};

inline HostStream make_stream() {
  Result<HostStream> stream = HostStream::create("failing");
  if (!stream.ok()) throw std::runtime_error(stream.status().to_string());
  return std::move(stream).value();
}

}  // namespace shardcomm::testing
