// Ranks as forked processes. Each has a pipe to the parent, on which it sends its failures, what it publishes, and that
// it got to its end; the parent collects, and kills by process id what hangs.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <thread>

#include "tests/support/live_threads.h"
#include "tests/support/rank_place.h"

// Of AddressSanitizer, where it is linked: _exit would skip its search for leaks.
extern "C" int __lsan_do_recoverable_leak_check() __attribute__((weak));

namespace shardcomm::testing {
namespace {

using Clock = std::chrono::steady_clock;

// A message is this head and `length` bytes of text.
struct Head {
  enum class Kind : uint32_t { kFailure, kPublished, kFinished } kind;
  int32_t line;          // of a failure
  uint32_t file_length;  // of a failure: the text begins with the file's name
  uint32_t length;
};

// The child's end of its pipe. Any thread.
class Sender {
 public:
  explicit Sender(int pipe) : pipe_(pipe) {}
  void send(Head head, std::string_view text) {
    head.length = static_cast<uint32_t>(text.size());
    std::string message(reinterpret_cast<const char*>(&head), sizeof head);
    message += text;
    const std::lock_guard lock(mutex_);
    for (size_t sent = 0; sent < message.size();) {
      const ssize_t n = write(pipe_, message.data() + sent, message.size() - sent);
      if (n < 0 && errno != EINTR) return;  // the parent is gone, and this process follows it
      if (n > 0) sent += static_cast<size_t>(n);
    }
  }

 private:
  std::mutex mutex_;
  int pipe_;
};

struct Child {
  pid_t process = -1;
  int pipe = -1;
  std::string unread;
  bool running = true;
  bool stopped = false;
  bool finished = false;  // said so itself
  bool overdue = false;
};

[[noreturn]] void be_rank(const RankContext::Place& place, Rank rank, int pipe,
                          const std::function<void(RankContext&)>& function) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  install_stack_handler();
  Sender sender(pipe);
  ::testing::TestEventListeners& listeners = ::testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());  // the parent prints
  listeners.Append(new FailureListener([&](const Assertion& failure) {
    sender.send({Head::Kind::kFailure, failure.line, static_cast<uint32_t>(failure.file.size()), 0},
                failure.file + failure.text);
  }));
  {
    RankContext context(place, rank);
    context.on_publish = [&](std::string_view text) { sender.send({Head::Kind::kPublished, 0, 0, 0}, text); };
    run_one_rank(context, function);
  }
  if (__lsan_do_recoverable_leak_check != nullptr && __lsan_do_recoverable_leak_check() != 0)
    ADD_FAILURE() << "rank " << rank << " leaks memory; see stderr";
  sender.send({Head::Kind::kFinished, 0, 0, 0}, "");
  std::fflush(nullptr);
  _exit(0);
}

#if defined(__SANITIZE_THREAD__)
constexpr size_t kLaterThreads = 1;  // ThreadSanitizer starts one with the first of the program
#else
constexpr size_t kLaterThreads = 0;
#endif
// The main thread, and those of an emulator.
const size_t own_threads = live_threads() + kLaterThreads;

// An emulator's thread is there for a moment longer than the thread that it ran, which has been joined.
bool has_other_threads() {
  for (int tries = 0; tries < 50; ++tries) {
    if (live_threads() <= own_threads) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

class Group {
 public:
  Group(const RankContext::Place& place, const RankRun& run) : place_(place), run_(run) {
    report_.published.resize(static_cast<size_t>(place.size));
    report_.wait_status.resize(static_cast<size_t>(place.size));
  }
  ~Group() {
    for (Child& child : children_) {
      if (child.running) {
        kill(child.process, SIGKILL);
        waitpid(child.process, nullptr, 0);
      }
      if (child.pipe >= 0) close(child.pipe);
    }
  }

  void start(const std::function<void(RankContext&)>& function) {
    std::fflush(nullptr);
    for (Rank rank = 0; rank < place_.size; ++rank) {
      int ends[2];
      if (pipe(ends) != 0) return fail(rank, std::string("pipe: ") + std::strerror(errno));
      const pid_t process = fork();
      if (process == 0) {
        close(ends[0]);
        for (const Child& sibling : children_) close(sibling.pipe);
        be_rank(place_, rank, ends[1], function);
      }
      close(ends[1]);
      Child child;
      child.process = process;
      child.pipe = ends[0];
      child.running = process > 0;
      children_.push_back(child);
      if (process < 0) return fail(rank, std::string("fork: ") + std::strerror(errno));
    }
  }

  RankReport collect() {
    const Clock::time_point deadline = Clock::now() + run_.deadline;
    while (std::any_of(children_.begin(), children_.end(), [](const Child& c) { return c.running; })) {
      read_pipes(std::chrono::milliseconds(20));
      for (Rank rank = 0; rank < static_cast<Rank>(children_.size()); ++rank) reap(rank);
      kill_stopped();
      if (Clock::now() > deadline) kill_overdue();
    }
    return std::move(report_);
  }

 private:
  bool is_doomed(Rank rank) const { return std::count(run_.doomed.begin(), run_.doomed.end(), rank) > 0; }

  void fail(Rank rank, const std::string& text, const char* file = __FILE__, int line = __LINE__) {
    report_.failures.push_back({rank, text});
    ADD_FAILURE_AT(file, line) << "rank " << rank << " of " << place_.size << ": " << text;
  }

  void read_pipes(std::chrono::milliseconds timeout) {
    std::vector<pollfd> waiting;
    for (const Child& child : children_) waiting.push_back({child.pipe, POLLIN, 0});
    poll(waiting.data(), waiting.size(), static_cast<int>(timeout.count()));
    for (size_t i = 0; i < children_.size(); ++i) {
      if (waiting[i].revents != 0) read_some(static_cast<Rank>(i));
    }
  }

  // False at the end of the pipe, or when there is nothing to read now.
  bool read_some(Rank rank) {
    Child& child = children_[static_cast<size_t>(rank)];
    pollfd ready{child.pipe, POLLIN, 0};
    if (child.pipe < 0 || poll(&ready, 1, 0) <= 0) return false;
    char bytes[65536];
    const ssize_t n = read(child.pipe, bytes, sizeof bytes);
    if (n <= 0) {
      close(std::exchange(child.pipe, -1));
      return false;
    }
    child.unread.append(bytes, static_cast<size_t>(n));
    while (take_message(rank)) {
    }
    return true;
  }

  bool take_message(Rank rank) {
    Child& child = children_[static_cast<size_t>(rank)];
    Head head;
    if (child.unread.size() < sizeof head) return false;
    std::memcpy(&head, child.unread.data(), sizeof head);
    if (child.unread.size() < sizeof head + head.length) return false;
    const std::string text = child.unread.substr(sizeof head, head.length);
    child.unread.erase(0, sizeof head + head.length);
    switch (head.kind) {
      case Head::Kind::kFailure:
        fail(rank, text.substr(head.file_length), text.substr(0, head.file_length).c_str(), head.line);
        break;
      case Head::Kind::kPublished: report_.published[static_cast<size_t>(rank)] += text; break;
      case Head::Kind::kFinished: child.finished = true; break;
    }
    return true;
  }

  void reap(Rank rank) {
    Child& child = children_[static_cast<size_t>(rank)];
    int status = 0;
    if (!child.running || waitpid(child.process, &status, WNOHANG | WUNTRACED | WCONTINUED) != child.process) return;
    child.stopped = WIFSTOPPED(status);
    if (WIFSTOPPED(status) || WIFCONTINUED(status)) return;
    child.running = false;
    report_.wait_status[static_cast<size_t>(rank)] = status;
    while (read_some(rank)) {
    }
    if (child.finished || is_doomed(rank)) return;
    if (child.overdue) return fail(rank, "still ran after " + std::to_string(run_.deadline.count()) + " ms; killed");
    if (WIFSIGNALED(status)) return fail(rank, std::string("killed by ") + strsignal(WTERMSIG(status)));
    fail(rank, "exited with " + std::to_string(WEXITSTATUS(status)) + " before its end");
  }

  // A doomed rank that has stopped itself will not end by itself: it goes when all others have ended.
  void kill_stopped() {
    if (std::any_of(children_.begin(), children_.end(), [](const Child& c) { return c.running && !c.stopped; })) return;
    for (const Child& child : children_) {
      if (child.running) kill(child.process, SIGKILL);
    }
  }

  void kill_overdue() {
    for (Child& child : children_) {
      if (!child.running || child.overdue) continue;
      child.overdue = true;
      std::fprintf(stderr, "process %d still runs; its stacks:\n", child.process);
      request_stacks(child.process);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    for (const Child& child : children_) {
      if (child.running) kill(child.process, SIGKILL);
    }
  }

  const RankContext::Place& place_;
  const RankRun& run_;
  std::vector<Child> children_;
  RankReport report_;
};

}  // namespace

RankReport run_processes(const RankContext::Place& place, const std::function<void(RankContext&)>& function,
                         const RankRun& run) {
  if (has_other_threads()) {
    ADD_FAILURE() << "cannot fork: this process has other threads";
    return {.failures = {{-1, "other threads"}}, .published = {}, .wait_status = {}};
  }
  Group group(place, run);
  group.start(function);
  return group.collect();
}

}  // namespace shardcomm::testing
