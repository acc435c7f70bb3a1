// Random programs of operations on several communicators, and what they must come to: a model that goes through the
// steps one after the other, for all ranks, on plain memory.
//
// A rank's memory is some buffers of each dtype. A step fills a stretch of one, each rank with values of its own, or is
// one operation of all groups of one grouping of the ranks: a collective, a message from one member to another, or a
// ring of messages. What an operation does is a list of moves for each member: from a stretch of another member's
// input, or from the reduction of all inputs, to a stretch of its output. A new kind of operation needs its moves in
// moves_of(), its extents and places in Step, and its call in program_run.cc.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "shardcomm/shardcomm.h"
#include "tests/support/random_calls.h"
#include "tests/support/reference.h"

namespace shardcomm::testing {

// How the ranks of the world form groups: what one call of split() gives, or the world itself.
struct Grouping {
  std::string name;
  std::vector<int> colors, keys;  // by rank; color < 0: in no group

  std::vector<std::vector<Rank>> groups() const;  // of world ranks, each in the order of its communicator
};
std::vector<Grouping> make_groupings(int ranks);  // the first is the world

// Where a member of a group has its input and output: elements of one of the buffers of the step's dtype.
struct Place {
  size_t buffer, first;
};
// Elements [to, to + count) of a member's output are [from, from + count) of the input of member `source`, or of the
// reduction of all inputs where that is −1.
struct ProgramMove {
  size_t to, count;
  int source;
  size_t from;
};

struct Step {
  enum class Kind : uint8_t { kFill, kCollective, kMessage, kRing } kind = Kind::kFill;
  uint64_t number = 0, seed = 0;  // of the program; the two together draw what follows from a step
  size_t grouping = 0, stream = 0;
  Collective collective{};
  DType dtype{};
  ReduceOp op{};
  size_t count = 0, root_draw = 0, items = 0;
  bool in_place = false;
  Place in{}, out{};  // as if not in place

  Rank root(size_t members) const { return static_cast<Rank>(root_draw % members); }
  // The ends of a message; the same member where there is only one.
  size_t sender(size_t members) const { return root_draw % members; }
  size_t receiver(size_t members) const;
  // Messages of equal pair and tag are matched in order, so they are all on one stream.
  int32_t tag() const;
  // Of the ragged forms by member, and of all_to_all_v by pair.
  size_t ragged_count(size_t member) const { return random_bits(seed + number, member) % (count + 1); }
  size_t pair_count(size_t source, size_t reader) const;
  std::vector<size_t> item_counts() const;             // of the _many forms; their tensors lie side by side
  size_t before(size_t members, size_t member) const;  // elements of the shards of the members before this one

  Place input_of(size_t members, size_t member) const;
  Place output_of(size_t members, size_t member) const;
  std::vector<ProgramMove> moves_of(size_t members, size_t member) const;
  std::string text() const;

 private:
  std::vector<ProgramMove> moves_of_collective(size_t members, size_t member) const;
};

class Program {
 public:
  static constexpr size_t kBuffers = 2;              // of each dtype
  static constexpr size_t kBufferElements = 24'000;  // no operation takes or gives more than half of that
  static constexpr size_t kStreams = 4;              // the last is the caller's thread

  Program(uint64_t seed, int ranks) : seed_(seed), ranks_(ranks), draw_(seed), groupings_(make_groupings(ranks)) {}
  Step next();
  const std::vector<Grouping>& groupings() const { return groupings_; }

 private:
  const uint64_t seed_;
  const int ranks_;
  Draw draw_;
  std::vector<Grouping> groupings_;
  uint64_t number_ = 0;
};

// The buffers of one rank.
class ProgramMemory {
 public:
  ProgramMemory();                            // on the heap, all zero
  explicit ProgramMemory(std::byte* window);  // the first buffers of all dtypes there: window_bytes() of it
  ProgramMemory(ProgramMemory&&) = default;
  static size_t window_bytes();

  std::byte* at(DType dtype, const Place& place) const;
  // Where the first element differs from that of the other, in words; empty where none does.
  std::string difference(const ProgramMemory& other) const;

 private:
  std::vector<std::byte> heap_;
  std::vector<std::byte*> buffers_;  // by dtype, then by buffer
};

class ProgramModel {
 public:
  explicit ProgramModel(const Program& program, int ranks);
  void run(const Step& step);
  const ProgramMemory& of(Rank rank) const { return memory_[static_cast<size_t>(rank)]; }

 private:
  void run(const Step& step, const std::vector<Rank>& group);
  std::vector<std::vector<std::vector<Rank>>> groups_;  // by grouping
  std::vector<ProgramMemory> memory_;                   // by rank
};

// Fills what a step of that kind fills, at one rank.
void fill(const Step& step, Rank rank, const ProgramMemory& memory);

}  // namespace shardcomm::testing
