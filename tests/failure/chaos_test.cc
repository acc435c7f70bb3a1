// Chaos: four processes run random collectives of random sizes on a loaded machine, while one of them is killed,
// stopped, stopped for a while, or late, at a random moment. Every run ends in time with the right results or with the
// right error on every survivor, and leaves nothing behind. By default a few runs: chaos_test --runs=200 for more.
// A run that failed is repeated alone by the flags it prints: --gtest_random_seed=SEED --first=RUN --runs=1.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "tests/support/failure.h"
#include "tests/support/random_calls.h"

namespace shardcomm::testing {
namespace {

constexpr int kRanks = 4;
constexpr Rank kMonkey = kRanks;  // one more process, which does the harm and no collectives
int first_run = 0, runs = 8;

enum class Harm { kNone, kKill, kStop, kPause, kLongPause, kDelay, kLongDelay, kAbort };
constexpr int kHarms = 8;
constexpr std::string_view kHarmNames[] = {"none",       "kill",  "stop",       "pause",
                                           "long pause", "delay", "long delay", "abort"};

enum : size_t { kStarted, kConnected, kHarmedAt, kEnough, kNap, kAbortNow, kEnded, kPids };  // in SharedWords

struct Plan {
  Harm harm;
  Rank victim;
  bool while_connecting;  // the moment counts from the start of the processes, else from the first operation
  std::chrono::microseconds moment;
  bool window, asynchronous;
  std::string options;
};

// Where a late rank must be too late. Long enough that a rank that only has to share its core is not.
constexpr auto kShortTimeout = 2'000ms;
constexpr auto kTooLong = kShortTimeout + 800ms;

Plan plan_of(uint64_t seed, int run) {
  constexpr const char* kOptions[] = {"memory_access=attach_gathers", "memory_access=attach,chunk_bytes=4160",
                                      "memory_access=staging", "memory_access=staging,staging_bytes=16384"};
  Draw draw(random_bits(seed, static_cast<uint64_t>(run)));
  Plan plan{};
  plan.harm = static_cast<Harm>(run % kHarms);
  plan.victim = static_cast<Rank>(draw.below(kRanks));
  plan.while_connecting =
      plan.harm != Harm::kDelay && plan.harm != Harm::kLongDelay && plan.harm != Harm::kAbort && draw.below(4) == 0;
  plan.moment = std::chrono::microseconds(draw.below(plan.while_connecting ? 40'000 : 150'000));
  plan.window = draw.below(2) == 0;
  plan.asynchronous = draw.below(2) == 0;
  const bool too_late = plan.harm == Harm::kStop || plan.harm == Harm::kLongPause || plan.harm == Harm::kLongDelay;
  plan.options = std::string(kOptions[draw.below(std::size(kOptions))]) +
                 (too_late ? ",timeout_ms=2000,init_timeout_ms=2000" : ",timeout_ms=20000,init_timeout_ms=20000");
  if (plan.harm == Harm::kKill && plan.while_connecting) plan.options += ",init_timeout_ms=2500";
  return plan;
}

bool is_fatal(Harm harm) { return harm != Harm::kNone && harm != Harm::kPause && harm != Harm::kDelay; }

// How long after the harm a rank may be told.
std::chrono::milliseconds patience(const Plan& plan, Rank rank) {
  if (plan.while_connecting) return 5'000ms;  // nobody may know yet of a rank that dies before it is met
  if (plan.harm == Harm::kKill || plan.harm == Harm::kAbort) return 1'000ms;
  return (rank == plan.victim ? kTooLong : kShortTimeout) + 1'000ms;
}

::testing::AssertionResult is_right(const Plan& plan, const Status& status) {
  if (!is_fatal(plan.harm)) {
    if (status.ok()) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << "nothing was wrong, but: " << status.to_string();
  }
  const std::string victim = "rank " + std::to_string(plan.victim);
  if (plan.while_connecting) {  // who is told first goes first, and may be whom the next one misses
    if (status.code() == Code::kPeerLost || status.code() == Code::kTimedOut)
      return failed_with(status, status.code(), {"rank"});
    return ::testing::AssertionFailure() << "neither lost nor late: " << status.to_string();
  }
  if (plan.harm == Harm::kKill) return failed_with(status, Code::kPeerLost, {victim});
  if (plan.harm == Harm::kAbort) return failed_with(status, Code::kAborted, {victim, "chaos"});
  return failed_with(status, Code::kTimedOut, {victim});
}

// Operations until all agree that it is enough, or the first failure.
Status work_on(const SharedWords& words, Rank rank, Communicator& comm, const Plan& plan, uint64_t seed) {
  std::optional<Window> window;
  if (plan.window) {
    Result<Window> made = comm.allocate_window(RandomCalls::window_bytes(kRanks), "chaos");
    if (!made.ok()) return made.status();
    window = std::move(made).value();
  }
  HostStream stream = make_stream();
  RandomCalls calls(comm, seed, window ? window->data() : nullptr);
  words[kConnected].fetch_add(1);
  for (uint32_t enough = 0; enough == 0;) {
    for (int i = 0; i < 5; ++i) {
      const bool here = !plan.asynchronous || calls.draw().below(4) == 0;
      SHARDCOMM_TRY(calls.one_more(here ? StreamRef::caller() : stream.ref()));
      SHARDCOMM_TRY(calls.settle(RandomCalls::kMostInFlight));
      if (rank != plan.victim) continue;
      std::this_thread::sleep_for(std::chrono::milliseconds(words[kNap].exchange(0)));
      if (words[kAbortNow].exchange(0) != 0) comm.abort("chaos");
    }
    const auto mine = static_cast<uint32_t>(words[kEnough].load());
    SHARDCOMM_TRY(outcome(comm.all_reduce({&mine, &enough, 1, DType::kU32, ReduceOp::kMax}, StreamRef::caller())));
  }
  return calls.settle(0);
}

Status connect_and_work(const SharedWords& words, RankContext& rank, const Plan& plan, uint64_t seed) {
  Result<std::unique_ptr<Store>> store = open_store(rank.next_store_uri());
  if (!store.ok()) return store.status();
  Result<Options> options = Options::parse(plan.options);
  if (!options.ok()) return options.status();
  Result<Communicator> comm =
      Communicator::create(**store, {.rank = rank.rank(), .size = kRanks, .device = {}}, *options);
  if (!comm.ok()) return comm.status();
  return work_on(words, rank.rank(), *comm, plan, seed);
}

void be_rank(const SharedWords& words, RankContext& rank, const Plan& plan, uint64_t seed) {
  const Resources before = Resources::now();
  words[kPids + static_cast<size_t>(rank.rank())].store(getpid());
  words[kStarted].fetch_add(1);
  const Status status = connect_and_work(words, rank, plan, seed);
  const auto told_after = words.since(kHarmedAt);
  words[kEnded].fetch_add(1);
  EXPECT_TRUE(is_right(plan, status));
  if (is_fatal(plan.harm)) {
    EXPECT_LT(told_after, stretched(patience(plan, rank.rank()))) << status.to_string();
  }
  const Resources after = Resources::now();
  EXPECT_EQ(after.descriptors, before.descriptors) << status.to_string();
  EXPECT_EQ(after.threads, before.threads);
  EXPECT_EQ(after.shared_mappings, before.shared_mappings);
}

void be_monkey(const SharedWords& words, const Plan& plan) {
  std::atomic<bool> over{false};
  std::vector<std::thread> burners;
  for (int i = 0; i < 2; ++i) {
    burners.emplace_back([&] {
      while (!over.load(std::memory_order_relaxed)) {
      }
    });
  }
  const auto nap = [](auto time) { std::this_thread::sleep_for(time); };
  // Unless one is gone already, which is wrong and says so itself.
  while (words[plan.while_connecting ? kStarted : kConnected] < kRanks && words[kEnded] == 0) nap(1ms);
  nap(plan.moment);
  words.mark_now(kHarmedAt);
  const auto victim = static_cast<pid_t>(words[kPids + static_cast<size_t>(plan.victim)].load());
  switch (plan.harm) {
    case Harm::kNone: break;
    case Harm::kKill: kill(victim, SIGKILL); break;
    case Harm::kStop: kill(victim, SIGSTOP); break;
    case Harm::kPause:
    case Harm::kLongPause:
      kill(victim, SIGSTOP);
      nap(plan.harm == Harm::kPause ? plan.moment : std::chrono::microseconds(kTooLong));
      kill(victim, SIGCONT);
      break;
    case Harm::kDelay: words[kNap].store(plan.moment.count() / 1000); break;
    case Harm::kLongDelay: words[kNap].store(std::chrono::milliseconds(kTooLong).count()); break;
    case Harm::kAbort: words[kAbortNow].store(1); break;
  }
  if (!is_fatal(plan.harm)) {
    nap(plan.moment);
    words[kEnough].store(1);
  } else {
    nap(200ms);
  }
  over = true;
  for (std::thread& burner : burners) burner.join();
}

TEST(Chaos, EndsInSuccessOrANamedErrorInTime) {
  std::printf("runs %d to %d of seed %llu\n", first_run, first_run + runs - 1,
              static_cast<unsigned long long>(test_seed()));
  const std::set<std::string> shm_before = files_in("/dev/shm");
  const size_t descriptors_before = Resources::now().descriptors;
  for (int run = first_run; run < first_run + runs; ++run) {
    const Plan plan = plan_of(test_seed(), run);
    const std::string harm(kHarmNames[static_cast<size_t>(plan.harm)]);
    SCOPED_TRACE("--gtest_random_seed=" + std::to_string(test_seed()) + " --first=" + std::to_string(run) +
                 " --runs=1: " + harm + " of rank " + std::to_string(plan.victim) + " after " +
                 std::to_string(plan.moment.count()) + " us" + (plan.while_connecting ? " while connecting" : "") +
                 ", options " + plan.options + (plan.window ? ", window" : "") +
                 (plan.asynchronous ? ", streams" : ""));
    const SharedWords words;
    RankRun how{.deadline = stretched(30s)};
    if (plan.harm == Harm::kKill || plan.harm == Harm::kStop) how.doomed = {plan.victim};
    const RankReport report = run_ranks(
        kRanks + 1, RankMode::kProcesses,
        [&](RankContext& rank) {
          if (rank.rank() == kMonkey) return be_monkey(words, plan);
          be_rank(words, rank, plan, random_bits(test_seed(), static_cast<uint64_t>(run), 1));
        },
        how);
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a process is left";
    EXPECT_EQ(files_in("/dev/shm"), shm_before);
    EXPECT_EQ(Resources::now().descriptors, descriptors_before);
    if (!report.ok()) std::printf("run %d failed\n", run);
  }
}

}  // namespace

void set_runs(int first, int count) {
  first_run = first;
  runs = count;
}

}  // namespace shardcomm::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  int first = 0, count = 8;
  for (int i = 1; i < argc; ++i) {
    if (std::sscanf(argv[i], "--first=%d", &first) != 1) (void)std::sscanf(argv[i], "--runs=%d", &count);
  }
  shardcomm::testing::set_runs(first, count);
  return RUN_ALL_TESTS();
}
