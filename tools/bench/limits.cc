#include "tools/bench/limits.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <ctime>
#include <utility>

#include "tools/bench/timing.h"

namespace shardcomm::tools {
namespace {

constexpr size_t kPage = 4096;
constexpr uint64_t kRoundTrips = 25;  // of a sample
constexpr uint64_t kRounds = 9;
constexpr double kPatienceUs = 2e6;   // for a peer that may be gone
constexpr float kSourceValue = 1.0f;  // a normal number whatever is summed

size_t index_of(Rank rank) { return static_cast<size_t>(rank); }

bool in_shared_memory(const BenchSpec& spec) { return spec.memory != BenchMemory::kOrdinary; }

// Fills what is not filled yet, page by page.
void fill(std::byte* at, size_t bytes) {
  const auto value = std::bit_cast<std::array<std::byte, sizeof(float)>>(kSourceValue);
  for (const std::byte* const end = at + bytes; at < end;) {
    const size_t part = std::min(kPage, static_cast<size_t>(end - at));
    const bool filled = part % sizeof(float) == 0 && std::memcmp(at, value.data(), sizeof value) == 0 &&
                        std::memcmp(at + part - sizeof value, value.data(), sizeof value) == 0;
    for (size_t i = 0; i < part && !filled; ++i) at[i] = value[i % sizeof value];
    at += part;
  }
}

// Spins until the line shows at least `value`. False when it does not for long.
bool await(const std::atomic<uint64_t>& line, uint64_t value) {
  double give_up_us = 0;
  for (uint64_t spins = 1; line.load(std::memory_order_acquire) < value; ++spins) {
    if (spins % 4096 != 0) continue;
    sched_yield();  // on a busy machine the peer may wait for this very core
    if (give_up_us == 0) give_up_us = now_us() + kPatienceUs;
    if (now_us() > give_up_us) return false;
  }
  return true;
}

void add_all_reduce(std::vector<Move>& moves, size_t begin, size_t bytes, size_t width, Rank rank, int ranks) {
  const size_t share = bytes / width / index_of(ranks) * width;
  for (Rank owner = 0; owner < ranks; ++owner) {
    const size_t at = index_of(owner) * share;
    const size_t part = owner + 1 == ranks ? bytes - at : share;
    moves.push_back({begin + at, part, owner == rank ? -1 : owner, begin + at});
  }
}

}  // namespace

std::vector<Move> moves_of(const BenchSpec& spec, const BenchLayout& layout, Rank rank, int ranks) {
  std::vector<Move> moves;
  if (!moves_bytes(spec)) return moves;
  if (spec.messages == BenchMessages::kPingPong && rank != 1) return moves;  // one copies at a time
  const size_t width = size_of(spec.dtype);
  for (const OutputRange& range : layout.outputs) {
    const bool there_already = range.source == rank && is_in_place(spec);
    if (there_already || range.count == 0) continue;
    if (traits(spec.collective).pattern == Pattern::kReduceAll)
      add_all_reduce(moves, range.at * width, range.count * width, width, rank, ranks);
    else
      moves.push_back({range.at * width, range.count * width, range.source, range.first * width});
  }
  return moves;
}

Limits::Limits(Communicator& comm, Pages sources, size_t source_bytes)
    : comm_(&comm), sources_(std::move(sources)), source_bytes_(source_bytes) {}

Result<Limits> Limits::create(Communicator& comm, const BenchSpec& spec, size_t source_bytes, int cores) {
  const size_t each = (source_bytes + spec.offset_bytes + kPage - 1) / kPage * kPage;
  const size_t whole = std::max(each, kPage) * index_of(comm.size());
  Result<Pages> sources = in_shared_memory(spec) ? Pages::make_shared(comm, whole, true) : Pages::make(whole, false);
  SHARDCOMM_TRY(sources.status());
  Limits limits(comm, std::move(sources).value(), each);
  limits.offset_bytes_ = spec.offset_bytes;
  limits.shared_ = in_shared_memory(spec);
  limits.turns_ = std::max(1.0, static_cast<double>(comm.size()) / std::max(cores, 1));
  if (limits.turns_ > 1 || comm.size() < 2) return limits;
  SHARDCOMM_TRY_ASSIGN(Pages lines, Pages::make_shared(comm, kPage, false));
  limits.lines_.emplace(std::move(lines));
  return limits;
}

// Of this thread alone where others of the job wait for its core: how long it is away is not up to the machine.
double Limits::clock_us() const {
  if (turns_ <= 1) return now_us();
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return (static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3) * turns_;
}

void Limits::prepare(const std::vector<Move>& moves, size_t own_at, size_t own_bytes) {
  if (shared_) return fill(source(comm_->rank()) + own_at, own_bytes);
  for (const Move& move : moves) {
    for (Rank rank = 0; rank < comm_->size(); ++rank) {
      if (move.source < 0 || move.source == rank) fill(source(rank) + move.from, move.bytes);
    }
  }
}

void Limits::run(const std::vector<Move>& moves, std::byte* out, Loop loop) const {
  constexpr size_t kOnStack = 64;
  const size_t ranks = index_of(comm_->size());
  const std::byte* on_stack[kOnStack];
  std::vector<const std::byte*> on_heap(ranks > kOnStack ? ranks : 0);
  const std::span<const std::byte*> sources(on_heap.empty() ? on_stack : on_heap.data(), ranks);
  for (const Move& move : moves) {
    if (move.source >= 0) {
      stream_copy(out + move.to, source(move.source) + move.from, move.bytes, loop);
      continue;
    }
    for (size_t rank = 0; rank < ranks; ++rank) sources[rank] = source(static_cast<Rank>(rank)) + move.from;
    stream_add(out + move.to, sources, move.bytes, loop);
  }
}

Status Limits::sample(const std::vector<Move>& moves, std::byte* out, int batch, int count, LimitSamples& samples) {
  for (const Loop loop : kLoops) {
    for (int i = 0; i < 2 * batch; ++i) run(moves, out, loop);  // caches take a while to settle
    for (int i = 0; i < count; ++i) {
      // Long runs begin together each time; of short ones, some at either end may be alone.
      if (batch == 1 || i == 0) SHARDCOMM_TRY(comm_->barrier(StreamRef::caller()).status());
      const double begin = clock_us();
      for (int k = 0; k < batch; ++k) run(moves, out, loop);
      samples[static_cast<size_t>(loop)].push_back((clock_us() - begin) / batch);
    }
  }
  return {};
}

std::optional<double> Limits::one_way_us() {
  const Rank rank = comm_->rank();
  if (!lines_ || rank > 1) return std::nullopt;
  auto* const lines = reinterpret_cast<std::atomic<uint64_t>*>(lines_->data());
  std::atomic<uint64_t>& ping = lines[0];
  std::atomic<uint64_t>& pong = lines[256 / sizeof(uint64_t)];  // not in a pair of lines that is fetched together
  std::vector<double> samples;
  double begin = now_us();
  for (uint64_t i = 1; i <= kRoundTrips * kRounds; ++i) {
    if (rank == 0) ping.store(round_ + i, std::memory_order_release);
    if (!await(rank == 0 ? pong : ping, round_ + i)) return std::nullopt;
    if (rank == 1) pong.store(round_ + i, std::memory_order_release);
    if (i % kRoundTrips != 0) continue;
    const double end = now_us();
    samples.push_back((end - begin) / (2.0 * kRoundTrips));
    begin = end;
  }
  round_ += kRoundTrips * kRounds;
  return statistics_of(std::move(samples)).median;  // whoever was interrupted, or late to begin with, does not count
}

Result<double> best_us(Communicator& comm, const LimitSamples& samples) {
  double best = INFINITY;
  for (const std::vector<double>& of_loop : samples) {
    SHARDCOMM_TRY_ASSIGN(std::vector<double> slowest, slowest_samples(comm, of_loop));
    best = std::min(best, statistics_of(std::move(slowest)).median);
  }
  return best;
}

Result<MachineLimits> machine_limits(Communicator& comm, const BenchSpec& spec, int cores) {
  constexpr size_t kTogether = size_t{64} << 20;  // of sources, and as much of outputs: more than caches hold
  constexpr int kSamples = 4;
  const size_t ranks = index_of(comm.size());
  const size_t bytes = std::max(kTogether / ranks, size_t{4} << 20);
  const size_t share = bytes / ranks / 4096 * 4096;
  SHARDCOMM_TRY_ASSIGN(Limits limits, Limits::create(comm, spec, bytes, cores));
  SHARDCOMM_TRY_ASSIGN(const Pages out, Pages::make(bytes, in_shared_memory(spec)));
  const auto next = static_cast<Rank>((index_of(comm.rank()) + 1) % ranks);
  const std::vector<Move> copy = {{0, bytes, next, 0}};
  const std::vector<Move> sum = {{0, share, -1, index_of(comm.rank()) * share}};
  for (const auto& moves : {copy, sum}) limits.prepare(moves, 0, bytes);
  LimitSamples copies, sums;
  SHARDCOMM_TRY(limits.sample(copy, out.data(), 1, kSamples, copies));
  SHARDCOMM_TRY(limits.sample(sum, out.data(), 1, kSamples, sums));
  SHARDCOMM_TRY(comm.barrier(StreamRef::caller()).status());
  const std::optional<double> line_us = limits.one_way_us();
  SHARDCOMM_TRY_ASSIGN(const double copy_us, best_us(comm, copies));
  SHARDCOMM_TRY_ASSIGN(const double sum_us, best_us(comm, sums));
  return MachineLimits{.bytes = bytes,
                       .copy_gb_s = static_cast<double>(bytes) / copy_us / 1e3,
                       .read_write_gb_s = static_cast<double>(share) / sum_us / 1e3,
                       .one_way_us = line_us};
}

}  // namespace shardcomm::tools
