// What is left of base: futexes, the logger's filter, checks, values as bytes, hashes, and libraries opened at run
// time.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <new>
#include <set>
#include <thread>

#include "base/check.h"
#include "base/dynamic_library.h"
#include "base/futex.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/pod.h"

namespace shardcomm {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

TEST(Futex, ReturnsForAChangedWordAndAPassedDeadline) {
  std::atomic<uint32_t> word{5};
  EXPECT_EQ(futex_wait(&word, 4, Deadline::max()), FutexResult::kChanged);
  EXPECT_EQ(futex_wait(&word, 5, steady_clock::now() - milliseconds(1)), FutexResult::kTimedOut);
  EXPECT_EQ(futex_wait(&word, 5, Deadline::min()), FutexResult::kTimedOut);
  const auto begin = steady_clock::now();
  EXPECT_EQ(futex_wait(&word, 5, begin + milliseconds(30)), FutexResult::kTimedOut);
  EXPECT_GE(steady_clock::now() - begin, milliseconds(30));
  EXPECT_EQ(futex_wake(&word, kWakeAll), 0);
}

void wait_for(const std::atomic<uint32_t>& word, uint32_t wanted) {
  for (;;) {
    const uint32_t seen = word.load(std::memory_order_acquire);
    if (seen == wanted) return;
    ASSERT_NE(futex_wait(&word, seen, steady_clock::now() + std::chrono::seconds(20)), FutexResult::kTimedOut);
  }
}

// Two processes hand a word to each other, 2,000 times.
TEST(Futex, WakesAcrossProcesses) {
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  auto* word = new (page) std::atomic<uint32_t>(0);
  constexpr uint32_t kTurns = 2000;
  const auto play = [&](uint32_t first) {
    for (uint32_t turn = first; turn < kTurns; turn += 2) {
      wait_for(*word, turn);
      word->store(turn + 1, std::memory_order_release);
      futex_wake(word, kWakeAll);
    }
  };
  const pid_t child = fork();
  if (child == 0) {
    play(1);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  play(0);
  int state = 0;
  ASSERT_EQ(waitpid(child, &state, 0), child);
  EXPECT_EQ(state, 0);
  EXPECT_EQ(word->load(), kTurns);
  munmap(page, 4096);
}

TEST(Log, LevelsFilterAndLinesStayWhole) {
  testing::internal::CaptureStderr();
  set_log_level("info");
  log(Level::kInfo, "rank {} epoch {}", 2, 7);
  log(Level::kDebug, "not shown");
  log(Level::kError, "two\nlines");
  set_log_level("off");
  log(Level::kError, "not shown");
  set_log_level("bogus");
  EXPECT_FALSE(log_enabled(Level::kError));
  EXPECT_FALSE(log_enabled(Level::kOff));
  set_log_level("warn");
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find(" info rank 2 epoch 7\n"), std::string::npos) << text;
  EXPECT_NE(text.find(" error two lines\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("not shown"), std::string::npos) << text;
}

TEST(CheckDeathTest, NamesTheInvariant) {
  EXPECT_DEATH(SHARDCOMM_CHECK(1 == 2, "numbers are broken"), "base_test.cc:[0-9]+: numbers are broken \\(1 == 2\\)");
}

TEST(Pod, ComesBackFromItsBytesAndFromNoOthers) {
  struct Pair {
    int32_t first;
    float second;
  };
  const Pair pair{-7, 1.5f};
  const std::string_view bytes = as_bytes(pair);
  const auto back = from_bytes<Pair>(bytes);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->first, pair.first);
  EXPECT_EQ(back->second, pair.second);
  EXPECT_FALSE(from_bytes<Pair>(bytes.substr(1)));
  EXPECT_FALSE(from_bytes<Pair>(std::string(bytes) + '\0'));
  EXPECT_FALSE(from_bytes<Pair>({}));
}

uint64_t hash_of(std::initializer_list<std::string_view> texts) {
  WordHash hash;
  for (const std::string_view text : texts) hash.add(text);
  return hash.value();
}

TEST(WordHash, KeepsNeighbouringTextsApart) {
  EXPECT_EQ(hash_of({"ab", "c"}), hash_of({"ab", "c"}));
  EXPECT_NE(hash_of({"ab", "c"}), hash_of({"a", "bc"}));
  EXPECT_NE(hash_of({"ab", "c"}), hash_of({"abc"}));
  EXPECT_NE(hash_of({""}), hash_of({}));
}

TEST(WordHash, DependsOnEveryWordOfMany) {
  const auto hash_without = [](int missing) {
    WordHash hash;
    for (int i = 0; i < 200; ++i) hash.add(static_cast<uint64_t>(i == missing ? 1000 : i));
    return hash.value();
  };
  std::set<uint64_t> hashes;
  for (int missing = -1; missing < 200; ++missing) hashes.insert(hash_without(missing));
  EXPECT_EQ(hashes.size(), 201U);
}

TEST(DynamicLibrary, OpensAndLoads) {
  const auto library = DynamicLibrary::open({"libabsent-for-sure.so.9", "libm.so.6"});
  ASSERT_TRUE(library.ok()) << library.status().to_string();
  EXPECT_EQ(library->name(), "libm.so.6");
  double (*cosine)(double) = nullptr;
  ASSERT_TRUE(library->load("cos", cosine).ok());
  EXPECT_EQ(cosine(0), 1);
  const Status absent = library->load("cos_of_nothing", cosine);
  EXPECT_EQ(absent.to_string(), "unavailable: libm.so.6 has no symbol cos_of_nothing");
  EXPECT_EQ(cosine(0), 1);
}

TEST(DynamicLibrary, SaysWhyItIsAbsent) {
  const auto library = DynamicLibrary::open({"libabsent-for-sure.so.9"});
  ASSERT_FALSE(library.ok());
  EXPECT_EQ(library.status().code(), Code::kUnavailable);
  EXPECT_NE(library.status().message().find("libabsent-for-sure.so.9"), std::string_view::npos);
}

}  // namespace
}  // namespace shardcomm
