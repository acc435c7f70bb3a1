#include "tests/support/program_run.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

namespace shardcomm::testing {
namespace {

using namespace std::chrono_literals;

void require(const Status& status, const std::string& what) {
  if (!status.ok()) throw std::runtime_error(what + ": " + status.to_string());
}

// The world's communicator and what it splits into.
std::vector<std::optional<Communicator>> make_groups(RankContext& rank, const Program& program,
                                                     std::string_view options) {
  std::vector<std::optional<Communicator>> groups;
  groups.emplace_back(rank.communicator(options));
  const auto r = static_cast<size_t>(rank.rank());
  for (size_t g = 1; g < program.groupings().size(); ++g) {
    const Grouping& grouping = program.groupings()[g];
    groups.push_back(groups.front()->split(grouping.colors[r], grouping.keys[r]).value());
  }
  return groups;
}

Window make_window(Communicator& world) {
  return world.allocate_window(ProgramMemory::window_bytes(), "program").value();
}

}  // namespace

ProgramRun::ProgramRun(RankContext& rank, uint64_t seed, std::string_view options)
    : rank_(rank.rank()),
      program_(seed, rank.size()),
      model_(program_, rank.size()),
      groups_(make_groups(rank, program_, options)),
      window_(make_window(*groups_.front())),
      memory_(window_.data()) {
  for (const char* name : {"first", "second", "third"}) streams_.push_back(HostStream::create(name).value());
}

void ProgramRun::run(size_t steps) {
  constexpr size_t kStepsPerLook = 100;
  for (size_t i = 1; i <= steps; ++i) {
    const Step step = program_.next();
    if (step.kind == Step::Kind::kFill) {
      fill_here(step);
    } else {
      call(step);
    }
    model_.run(step);
    settle(kMostInFlight);
    const uint64_t delay = random_bits(step.seed, static_cast<uint64_t>(rank_) + 7, step.number);
    if (delay % 32 == 0) std::this_thread::sleep_for(std::chrono::microseconds(delay >> 8 & 511));
    if (i % kStepsPerLook != 0 && i != steps) continue;
    settle(0);
    if (!compare(step)) return;
  }
}

StreamRef ProgramRun::stream_of(const Step& step) const {
  return step.stream < streams_.size() ? streams_[step.stream].ref() : StreamRef::caller();
}

ProgramRun::Use& ProgramRun::use_of(const Step& step, const Place& place) {
  return uses_[static_cast<size_t>(step.dtype)][place.buffer];
}

// The operations of one communicator run in the order of the calls; those of several are ordered by their streams.
void ProgramRun::order(const Work& work, StreamRef stream) const {
  if (stream.is_caller()) {
    require(work.synchronize(std::chrono::steady_clock::now() + 30s), "waiting for an earlier step");
  } else {
    require(stream.wait(work), "ordering streams");
  }
}

void ProgramRun::fill_here(const Step& step) {
  Use& use = use_of(step, step.out);
  order(use.writer, StreamRef::caller());
  for (const Work& reader : use.readers) order(reader, StreamRef::caller());
  use = {};
  fill(step, rank_, memory_);
}

void ProgramRun::call(const Step& step) {
  std::optional<Communicator>& group = groups_[step.grouping];
  if (!group) return;
  const auto members = static_cast<size_t>(group->size()), me = static_cast<size_t>(group->rank());
  const bool is_message = step.kind == Step::Kind::kMessage;
  if (is_message && me != step.sender(members) && me != step.receiver(members)) return;
  const Place in = step.input_of(members, me), out = step.output_of(members, me);
  const StreamRef stream = stream_of(step);
  Use &read = use_of(step, in), &written = use_of(step, out);
  order(read.writer, stream);
  order(written.writer, stream);
  for (const Work& reader : written.readers) order(reader, stream);
  Result<Work> work = make_call(step, {memory_.at(step.dtype, in), memory_.at(step.dtype, out), members, me}, stream);
  require(work.status(), step.text());
  read.readers.push_back(*work);
  written = {.writer = *work, .readers = {}};
  in_flight_.push_back(*work);
}

// A message to itself is sent and received as one operation: a send alone may wait for its receive.
Result<Work> ProgramRun::make_call(const Step& step, const Arguments& given, StreamRef stream) {
  if (step.kind == Step::Kind::kCollective) return make_collective_call(step, given, stream);
  Communicator& comm = *groups_[step.grouping];
  const auto& [in, out, members, me] = given;
  const bool is_message = step.kind == Step::Kind::kMessage && members > 1;
  const size_t to = is_message ? step.receiver(members) : (me + 1) % members;
  const size_t from = is_message ? step.sender(members) : (me + members - 1) % members;
  const SendArgs send{
      .data = in, .count = step.count, .dtype = step.dtype, .peer = static_cast<Rank>(to), .tag = step.tag()};
  const RecvArgs recv{
      .data = out, .count = step.count, .dtype = step.dtype, .peer = static_cast<Rank>(from), .tag = step.tag()};
  if (!is_message) return comm.send_recv_many({&send, 1}, {&recv, 1}, stream);
  return me == from ? comm.send(send, stream) : comm.recv(recv, stream);
}

Result<Work> ProgramRun::make_collective_call(const Step& step, const Arguments& given, StreamRef stream) {
  Communicator& comm = *groups_[step.grouping];
  const auto& [in, out, members, me] = given;
  const Rank root = step.root(members);
  const bool is_root = me == static_cast<size_t>(root);
  const size_t count = step.count;
  const DType dtype = step.dtype;
  switch (step.collective) {
    case Collective::kBarrier: return comm.barrier(stream);
    case Collective::kAllGather:
      return comm.all_gather({.shard = in, .full = out, .count = count, .dtype = dtype}, stream);
    case Collective::kReduceScatter:
      return comm.reduce_scatter({.full = in, .shard = out, .count = count, .dtype = dtype, .op = step.op}, stream);
    case Collective::kAllReduce:
      return comm.all_reduce({.in = in, .out = out, .count = count, .dtype = dtype, .op = step.op}, stream);
    case Collective::kBroadcast:
      return comm.broadcast({.data = out, .count = count, .dtype = dtype, .root = root}, stream);
    case Collective::kAllToAll:
      return comm.all_to_all({.in = in, .out = out, .count_per_rank = count, .dtype = dtype}, stream);
    case Collective::kGather:
      return comm.gather({.shard = in, .full = is_root ? out : nullptr, .count = count, .dtype = dtype, .root = root},
                         stream);
    case Collective::kScatter:
      return comm.scatter({.full = is_root ? in : nullptr, .shard = out, .count = count, .dtype = dtype, .root = root},
                          stream);
    case Collective::kReduce:
      return comm.reduce(
          {.in = in, .out = is_root ? out : nullptr, .count = count, .dtype = dtype, .op = step.op, .root = root},
          stream);
    case Collective::kAllGatherV:
    case Collective::kReduceScatterV:
    case Collective::kAllToAllV: return make_ragged_call(step, given, stream);
    case Collective::kAllGatherMany:
    case Collective::kReduceScatterMany:
    case Collective::kAllReduceMany:
    case Collective::kBroadcastMany: return make_many_call(step, given, stream);
  }
  throw std::runtime_error("a collective that the program does not know");
}

Result<Work> ProgramRun::make_ragged_call(const Step& step, const Arguments& given, StreamRef stream) {
  Communicator& comm = *groups_[step.grouping];
  const auto& [in, out, members, me] = given;
  std::vector<size_t> counts, in_counts, out_counts;
  for (size_t m = 0; m < members; ++m) {
    counts.push_back(step.ragged_count(m));
    in_counts.push_back(step.pair_count(me, m));
    out_counts.push_back(step.pair_count(m, me));
  }
  if (step.collective == Collective::kAllGatherV)
    return comm.all_gather_v({.shard = in, .full = out, .counts = counts, .dtype = step.dtype}, stream);
  if (step.collective == Collective::kReduceScatterV) {
    return comm.reduce_scatter_v({.full = in, .shard = out, .counts = counts, .dtype = step.dtype, .op = step.op},
                                 stream);
  }
  return comm.all_to_all_v(
      {.in = in, .in_counts = in_counts, .out = out, .out_counts = out_counts, .dtype = step.dtype}, stream);
}

Result<Work> ProgramRun::make_many_call(const Step& step, const Arguments& given, StreamRef stream) {
  Communicator& comm = *groups_[step.grouping];
  const auto& [in, out, members, me] = given;
  std::vector<GatherItem> gathers;
  std::vector<ReduceItem> reductions;
  std::vector<AllReduceItem> all_reductions;
  std::vector<BroadcastItem> broadcasts;
  size_t at = 0;
  for (const size_t count : step.item_counts()) {
    std::byte* const small_in = in + at;
    gathers.push_back({small_in, out + members * at, count, step.dtype});
    reductions.push_back({in + members * at, out + at, count, step.dtype, step.op});
    all_reductions.push_back({small_in, out + at, count, step.dtype, step.op});
    broadcasts.push_back({out + at, count, step.dtype});
    at += count * size_of(step.dtype);
  }
  switch (step.collective) {
    case Collective::kAllGatherMany: return comm.all_gather_many(gathers, stream);
    case Collective::kReduceScatterMany: return comm.reduce_scatter_many(reductions, stream);
    case Collective::kAllReduceMany: return comm.all_reduce_many(all_reductions, stream);
    default: return comm.broadcast_many(broadcasts, step.root(members), stream);
  }
}

void ProgramRun::settle(size_t left) {
  for (; in_flight_.size() > left; in_flight_.pop_front())
    require(in_flight_.front().synchronize(std::chrono::steady_clock::now() + 30s), "an operation in flight");
}

bool ProgramRun::compare(const Step& last) {
  const std::string difference = memory_.difference(model_.of(rank_));
  if (difference.empty()) return true;
  ADD_FAILURE() << "after " << last.text() << ": " << difference;
  return false;
}

}  // namespace shardcomm::testing
