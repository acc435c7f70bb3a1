#include "tools/bench/machine.h"

#include <fmt/format.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <vector>

#include "tools/bench/memory.h"
#include "tools/bench/timing.h"

namespace shardcomm::tools {
namespace {

constexpr int kTurns = 200;
constexpr size_t kPiece = size_t{256} << 10;
constexpr size_t kAttachBytes = size_t{32} << 20;
constexpr int kAttachSamples = 5;
constexpr timespec kPatience{.tv_sec = 2, .tv_nsec = 0};  // for a peer that may be gone

Status barrier(Communicator& comm) { return comm.barrier(StreamRef::caller()).status(); }

// Sleeps until the word is `value`, which the peer makes it; false when it does not for long.
bool sleep_until(std::atomic<uint32_t>& word, uint32_t value) {
  for (;;) {
    const uint32_t seen = word.load(std::memory_order_acquire);
    if (seen == value) return true;
    const long slept = syscall(SYS_futex, &word, FUTEX_WAIT, seen, &kPatience, nullptr, 0);
    if (slept != 0 && errno == ETIMEDOUT) return false;
  }
}

void wake_with(std::atomic<uint32_t>& word, uint32_t value) {
  word.store(value, std::memory_order_release);
  syscall(SYS_futex, &word, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

// Median time of a turn, on ranks 0 and 1; below zero when the peer did not answer.
double take_turns(Rank rank, std::atomic<uint32_t>* words) {
  std::vector<double> samples;
  double begin = now_us();
  for (uint32_t i = 1; i <= kTurns; ++i) {
    if (rank == 0) wake_with(words[0], i);
    if (!sleep_until(words[rank == 0 ? 1 : 0], i)) return -1;
    if (rank == 1) wake_with(words[1], i);
    const double end = now_us();
    samples.push_back((end - begin) / 2);
    begin = end;
  }
  return statistics_of(std::move(samples)).median;
}

struct Address {
  int64_t process;
  uint64_t data;
};

// 0, or errno's value.
int read_all(const Address& from, std::byte* to, size_t bytes, size_t piece) {
  for (size_t at = 0; at < bytes; at += piece) {
    const iovec local{to + at, piece};
    const iovec remote{reinterpret_cast<void*>(from.data + at), piece};
    if (process_vm_readv(static_cast<pid_t>(from.process), &local, 1, &remote, 1, 0) < 0) return errno;
  }
  return 0;
}

}  // namespace

Result<double> turn_us(Communicator& comm) {
  SHARDCOMM_TRY_ASSIGN(const Pages shared, Pages::make_shared(comm, 4096, false));
  cpu_set_t before, first;
  CPU_ZERO(&before);
  if (sched_getaffinity(0, sizeof before, &before) != 0)
    return Status::native(Origin::kErrno, errno, "sched_getaffinity");
  first = before;
  SHARDCOMM_TRY(
      comm.broadcast({.data = &first, .count = sizeof first, .dtype = DType::kU8}, StreamRef::caller()).status());
  int one = 0;  // the first core of rank 0
  while (one < CPU_SETSIZE - 1 && !CPU_ISSET(one, &first)) ++one;
  CPU_ZERO(&first);
  CPU_SET(one, &first);
  double us = 0;
  if (comm.rank() < 2) {
    const bool moved = sched_setaffinity(0, sizeof first, &first) == 0;
    us = moved ? take_turns(comm.rank(), reinterpret_cast<std::atomic<uint32_t>*>(shared.data())) : -1;
    (void)sched_setaffinity(0, sizeof before, &before);
  }
  SHARDCOMM_TRY_ASSIGN(const double failed, most_of_ranks(comm, us < 0 ? 1 : 0));
  if (failed > 0) return Status(Code::kUnavailable, "ranks 0 and 1 cannot share a core");
  return most_of_ranks(comm, us);
}

Result<AttachSpeed> attach_speed(Communicator& comm) {
  const auto ranks = static_cast<size_t>(comm.size());
  SHARDCOMM_TRY_ASSIGN(const Pages from, Pages::make(kAttachBytes, false));
  SHARDCOMM_TRY_ASSIGN(const Pages to, Pages::make(kAttachBytes, false));
  std::memset(from.data(), 1, kAttachBytes);
  std::memset(to.data(), 2, kAttachBytes);
  const Address mine{getpid(), reinterpret_cast<uint64_t>(from.data())};
  std::vector<Address> all(ranks);
  SHARDCOMM_TRY(comm.all_gather({.shard = &mine, .full = all.data(), .count = sizeof mine, .dtype = DType::kU8},
                                StreamRef::caller())
                    .status());
  const Address& next = all[(static_cast<size_t>(comm.rank()) + 1) % ranks];
  int error = next.process == getpid() ? ENOTSUP : read_all(next, to.data(), 8, 8);
  SHARDCOMM_TRY_ASSIGN(const double worst, most_of_ranks(comm, error));
  if (worst > 0) return Status::native(Origin::kErrno, static_cast<int>(worst), "process_vm_readv");
  std::vector<double> calls, reads;
  for (int i = 0; i < kAttachSamples; ++i) {
    SHARDCOMM_TRY(barrier(comm));
    double begin = now_us();
    for (size_t k = 0; k < 32; ++k) error |= read_all(next, to.data(), 8, 8);
    calls.push_back((now_us() - begin) / 32);
    SHARDCOMM_TRY(barrier(comm));
    begin = now_us();
    error |= read_all(next, to.data(), kAttachBytes, kPiece);
    reads.push_back(now_us() - begin);
  }
  SHARDCOMM_TRY_ASSIGN(const double failed, most_of_ranks(comm, error));  // and nobody unmaps what is still read
  if (failed > 0) return Status::native(Origin::kErrno, static_cast<int>(failed), "process_vm_readv");
  SHARDCOMM_TRY_ASSIGN(std::vector<double> slow_calls, slowest_samples(comm, calls));
  SHARDCOMM_TRY_ASSIGN(std::vector<double> slow_reads, slowest_samples(comm, reads));
  return AttachSpeed{.call_us = statistics_of(std::move(slow_calls)).median,
                     .gb_s = static_cast<double>(kAttachBytes) / statistics_of(std::move(slow_reads)).median / 1e3};
}

}  // namespace shardcomm::tools
