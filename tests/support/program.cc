#include "tests/support/program.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <numeric>

namespace shardcomm::testing {
namespace {

constexpr size_t kMostElementBytes = 16;
constexpr size_t kBufferBytes = Program::kBufferElements * kMostElementBytes;

// Broadcasts are always in place; what exchanges never is, and tensors side by side are not each in its own place.
bool draw_in_place(Collective collective, Draw& draw) {
  switch (collective) {
    case Collective::kBroadcast:
    case Collective::kBroadcastMany: return true;
    case Collective::kAllToAll:
    case Collective::kAllToAllV:
    case Collective::kAllGatherMany:
    case Collective::kReduceScatterMany:
    case Collective::kBarrier: return false;
    default: return draw.below(3) == 0;
  }
}

}  // namespace

std::vector<std::vector<Rank>> Grouping::groups() const {
  std::map<int, std::vector<std::pair<int, Rank>>> by_color;
  for (size_t r = 0; r < colors.size(); ++r) {
    if (colors[r] >= 0) by_color[colors[r]].emplace_back(keys[r], static_cast<Rank>(r));
  }
  std::vector<std::vector<Rank>> groups;
  for (auto& [unused, members] : by_color) {
    std::ranges::sort(members);
    std::vector<Rank>& group = groups.emplace_back();
    for (const auto& [key, rank] : members) group.push_back(rank);
  }
  return groups;
}

std::vector<Grouping> make_groupings(int ranks) {
  Grouping world{"world", {}, {}}, reversed{"reversed", {}, {}}, halves{"halves", {}, {}}, rest{"rest", {}, {}};
  for (int r = 0; r < ranks; ++r) {
    for (Grouping* grouping : {&world, &reversed}) grouping->colors.push_back(0);
    world.keys.push_back(r);
    reversed.keys.push_back(-r);
    halves.colors.push_back(r % 2);
    halves.keys.push_back(r * 5 % 3);
    rest.colors.push_back(r == 0 ? -1 : 0);
    rest.keys.push_back(r);
  }
  return {world, reversed, halves, rest};
}

size_t Step::pair_count(size_t source, size_t reader) const {
  const uint64_t bits = random_bits(seed + number, source, reader + 1);
  return bits % 4 == 0 ? 0 : (bits >> 8) % (count + 1);
}

std::vector<size_t> Step::item_counts() const {
  std::vector<size_t> counts;
  size_t left = count;
  for (size_t i = 0; i < items; ++i) {
    counts.push_back(i + 1 == items ? left : random_bits(seed + number, 3, i) % (left + 1));
    left -= counts.back();
  }
  return counts;
}

size_t Step::before(size_t members, size_t member) const {
  const bool is_ragged = collective == Collective::kAllGatherV || collective == Collective::kReduceScatterV;
  if (!is_ragged) return std::min(member, members) * count;
  size_t sum = 0;
  for (size_t m = 0; m < member; ++m) sum += ragged_count(m);
  return sum;
}

Place Step::input_of(size_t members, size_t member) const {
  if (!in_place) return in;
  switch (collective) {
    case Collective::kAllGather:
    case Collective::kAllGatherV:
    case Collective::kGather: return {out.buffer, out.first + before(members, member)};
    case Collective::kReduceScatter:
    case Collective::kReduceScatterV:
    case Collective::kScatter: return in;
    default: return out;
  }
}

Place Step::output_of(size_t members, size_t member) const {
  const bool of_shards = collective == Collective::kReduceScatter || collective == Collective::kReduceScatterV ||
                         collective == Collective::kScatter;
  return in_place && of_shards ? Place{in.buffer, in.first + before(members, member)} : out;
}

size_t Step::receiver(size_t members) const {
  if (members == 1) return 0;
  return (sender(members) + 1 + root_draw / members % (members - 1)) % members;
}

int32_t Step::tag() const { return static_cast<int32_t>(stream + Program::kStreams * (number % 2)); }

std::vector<ProgramMove> Step::moves_of(size_t n, size_t me) const {
  if (kind == Kind::kCollective) return moves_of_collective(n, me);
  if (kind == Kind::kRing) return {{0, count, static_cast<int>((me + n - 1) % n), 0}};
  if (me != receiver(n)) return {};
  return {{0, count, static_cast<int>(sender(n)), 0}};
}

std::vector<ProgramMove> Step::moves_of_collective(size_t n, size_t me) const {
  std::vector<ProgramMove> moves;
  const Rank from_root = root(n);
  const bool is_root = me == static_cast<size_t>(from_root);
  const auto each_member = [&](auto&& move) {
    for (size_t s = 0; s < n; ++s) moves.push_back(move(s));
  };
  const auto each_item = [&](auto&& add) {
    size_t at = 0;
    for (const size_t c : item_counts()) {
      add(at, c);
      at += c;
    }
  };
  const auto shard_of = [&](size_t s) { return ProgramMove{s * count, count, static_cast<int>(s), 0}; };
  switch (collective) {
    case Collective::kBarrier: break;
    case Collective::kAllGather: each_member(shard_of); break;
    case Collective::kGather:
      if (is_root) each_member(shard_of);
      break;
    case Collective::kReduceScatter: moves = {{0, count, -1, me * count}}; break;
    case Collective::kScatter: moves = {{0, count, from_root, me * count}}; break;
    case Collective::kAllReduce: moves = {{0, count, -1, 0}}; break;
    case Collective::kReduce:
      if (is_root) moves = {{0, count, -1, 0}};
      break;
    case Collective::kBroadcast: moves = {{0, count, from_root, 0}}; break;
    case Collective::kAllToAll:
      each_member([&](size_t s) { return ProgramMove{s * count, count, static_cast<int>(s), me * count}; });
      break;
    case Collective::kAllGatherV:
      each_member([&](size_t s) { return ProgramMove{before(n, s), ragged_count(s), static_cast<int>(s), 0}; });
      break;
    case Collective::kReduceScatterV: moves = {{0, ragged_count(me), -1, before(n, me)}}; break;
    case Collective::kAllToAllV: {
      size_t to = 0;
      each_member([&](size_t s) {
        size_t from = 0;
        for (size_t reader = 0; reader < me; ++reader) from += pair_count(s, reader);
        const ProgramMove move{to, pair_count(s, me), static_cast<int>(s), from};
        to += move.count;
        return move;
      });
      break;
    }
    case Collective::kAllGatherMany:
      each_item([&](size_t at, size_t c) {
        each_member([&](size_t s) { return ProgramMove{n * at + s * c, c, static_cast<int>(s), at}; });
      });
      break;
    case Collective::kReduceScatterMany:
      each_item([&](size_t at, size_t c) { moves.push_back({at, c, -1, n * at + me * c}); });
      break;
    case Collective::kAllReduceMany: each_item([&](size_t at, size_t c) { moves.push_back({at, c, -1, at}); }); break;
    case Collective::kBroadcastMany:
      each_item([&](size_t at, size_t c) { moves.push_back({at, c, from_root, at}); });
      break;
  }
  return moves;
}

std::string Step::text() const {
  constexpr std::string_view kKinds[] = {"fill", "", "message", "ring"};
  const std::string what(kind == Kind::kCollective ? name(collective) : kKinds[static_cast<size_t>(kind)]);
  return "step " + std::to_string(number) + " " + what + " " + std::string(name(dtype)) + " " + std::to_string(count) +
         (in_place ? " in place" : "") + ", grouping " + std::to_string(grouping) + ", stream " +
         std::to_string(stream) + ", seed " + std::to_string(seed);
}

// A quarter of the steps fill, so that values stay varied.
Step Program::next() {
  constexpr size_t kHalf = kBufferElements / 2;
  Step step;
  step.number = ++number_;
  step.seed = seed_;
  constexpr Step::Kind kKinds[] = {Step::Kind::kFill, Step::Kind::kFill, Step::Kind::kMessage, Step::Kind::kRing};
  const size_t kind = draw_.below(8);
  step.kind = kind < std::size(kKinds) ? kKinds[kind] : Step::Kind::kCollective;
  step.grouping = draw_.below(groupings_.size());
  step.stream = draw_.below(kStreams);
  step.collective = static_cast<Collective>(draw_.below(kCollectiveCount));
  step.dtype = static_cast<DType>(draw_.below(kDTypeCount));
  step.op = static_cast<ReduceOp>(draw_.below(kReduceOpCount));
  if (!supports(step.dtype, step.op)) step.op = ReduceOp::kSum;
  const CollectiveTraits& has = traits(step.collective);
  const bool takes_parts = has.is_ragged || has.has_own_counts() || has.whole(2) != 1;
  step.count = draw_.count(takes_parts ? kHalf / static_cast<size_t>(ranks_) : kHalf);
  step.root_draw = draw_.below(1024);
  step.items = has.is_many ? draw_.below(24) + 1 : 0;
  step.in_place = draw_in_place(step.collective, draw_) && step.kind == Step::Kind::kCollective;
  step.in = {draw_.below(kBuffers), draw_.below(kHalf)};
  step.out = {1 - step.in.buffer, draw_.below(kHalf)};
  return step;
}

size_t ProgramMemory::window_bytes() { return kBufferBytes * kDTypeCount; }

ProgramMemory::ProgramMemory() : heap_(kBufferBytes * kDTypeCount * Program::kBuffers) {
  for (size_t i = 0; i < kDTypeCount * Program::kBuffers; ++i) buffers_.push_back(heap_.data() + i * kBufferBytes);
}

ProgramMemory::ProgramMemory(std::byte* window) : ProgramMemory() {
  std::memset(window, 0, window_bytes());
  for (size_t d = 0; d < kDTypeCount; ++d) buffers_[d * Program::kBuffers] = window + d * kBufferBytes;
}

std::byte* ProgramMemory::at(DType dtype, const Place& place) const {
  const auto d = static_cast<size_t>(dtype);
  return buffers_[d * Program::kBuffers + place.buffer] + place.first * size_of(dtype);
}

std::string ProgramMemory::difference(const ProgramMemory& other) const {
  for (int d = 0; d < kDTypeCount; ++d) {
    const auto dtype = static_cast<DType>(d);
    for (size_t b = 0; b < Program::kBuffers; ++b) {
      const std::byte* mine = at(dtype, {b, 0});
      const std::byte* theirs = other.at(dtype, {b, 0});
      if (std::memcmp(mine, theirs, Program::kBufferElements * size_of(dtype)) == 0) continue;
      const auto at = first_difference(mine, theirs, Program::kBufferElements, dtype);
      if (!at) continue;
      return "element " + std::to_string(*at) + " of buffer " + std::to_string(b) + " of " + std::string(name(dtype)) +
             " is " + element_text(mine, *at, dtype) + ", expected " + element_text(theirs, *at, dtype);
    }
  }
  return {};
}

ProgramModel::ProgramModel(const Program& program, int ranks) : memory_(static_cast<size_t>(ranks)) {
  for (const Grouping& grouping : program.groupings()) groups_.push_back(grouping.groups());
}

void ProgramModel::run(const Step& step) {
  if (step.kind == Step::Kind::kFill) {
    for (size_t r = 0; r < memory_.size(); ++r) fill(step, static_cast<Rank>(r), memory_[r]);
    return;
  }
  for (const std::vector<Rank>& group : groups_[step.grouping]) run(step, group);
}

// All results first, then all writes: outputs may lie where inputs do.
void ProgramModel::run(const Step& step, const std::vector<Rank>& group) {
  struct Write {
    std::byte* to;
    std::vector<std::byte> bytes;
  };
  std::vector<Write> writes;
  const size_t n = group.size(), size = size_of(step.dtype);
  const auto input = [&](size_t m) { return of(group[m]).at(step.dtype, step.input_of(n, m)); };
  for (size_t me = 0; me < n; ++me) {
    for (const ProgramMove& move : step.moves_of(n, me)) {
      if (move.count == 0) continue;
      std::vector<std::byte> bytes(move.count * size);
      if (move.source >= 0) {
        std::memcpy(bytes.data(), input(static_cast<size_t>(move.source)) + move.from * size, bytes.size());
      } else {
        std::vector<const std::byte*> sources;
        for (size_t m = 0; m < n; ++m) sources.push_back(input(m) + move.from * size);
        reduce_elements(bytes.data(), sources, move.count, step.dtype, step.op);
      }
      std::byte* const out = of(group[me]).at(step.dtype, step.output_of(n, me));
      writes.push_back({out + move.to * size, std::move(bytes)});
    }
  }
  for (const Write& write : writes) std::memcpy(write.to, write.bytes.data(), write.bytes.size());
}

void fill(const Step& step, Rank rank, const ProgramMemory& memory) {
  fill_elements(memory.at(step.dtype, step.out), step.seed + step.number, rank, 0, step.count, step.dtype);
}

}  // namespace shardcomm::testing
