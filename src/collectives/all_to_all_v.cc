// all_to_all_v. What a rank takes, and from where, depends on counts that only its peers know, so every rank announces
// its counts together with its bytes: bytes that are few travel in the announcement, others are read where they lie.
// Each rank decides that for itself, since no count is known to all before; if no rank has bytes of the second kind,
// nobody waits twice.
// Steps: 1 signal, or 2 where some rank's bytes are read in place. Bytes a rank reads: those meant for it.
//
// The announcement: a PairHead, in_offsets[n + 1], the bytes that travel, and out_counts[n], which are read only to
// explain an error and so come last.
#include <fmt/format.h>

#include <algorithm>

#include "base/hash.h"
#include "collectives/all_to_all_v.h"
#include "collectives/direct_copy.h"
#include "collectives/engine.h"
#include "collectives/inline_message.h"
#include "collectives/scratch_buffers.h"
#include "collectives/source_table.h"
#include "collectives/transfer_cursor.h"

namespace shardcomm {
namespace {

// More than this is copied once where it lies rather than twice through the message.
constexpr size_t kMostInlineBytes = 8 << 10;

struct PairHead {
  SourceEntry entry;  // first, so that it is the source table of what does not travel
  uint64_t in_sum;    // of the hashes of what this rank gives to each rank
  uint64_t out_sum;   // of the hashes of what it expects of each rank: summed over all ranks, the two must agree
};
static_assert(sizeof(PairHead) % kItemAlign == 0);
constexpr SourceEntry kTravels{.address = 0, .window = kNoWindow - 1, .staged = 0};

constexpr size_t offsets_bytes(size_t ranks) noexcept { return sizeof(PairHead) + (ranks + 1) * sizeof(uint64_t); }
constexpr size_t counts_bytes(size_t ranks) noexcept { return ranks * sizeof(uint64_t); }

// An announcement as its reader sees it.
struct PairMessage {
  PairMessage(std::span<const std::byte> payload, int size) noexcept
      : head(*reinterpret_cast<const PairHead*>(payload.data())),
        in_offsets(reinterpret_cast<const uint64_t*>(payload.data() + sizeof(PairHead))),
        bytes(payload.data() + offsets_bytes(static_cast<size_t>(size))),
        out_counts(reinterpret_cast<const uint64_t*>(payload.data() + payload.size() -
                                                     counts_bytes(static_cast<size_t>(size)))) {}
  bool travels() const noexcept { return head.entry.window == kTravels.window; }

  const PairHead& head;
  const uint64_t* in_offsets;
  const std::byte* bytes;
  const uint64_t* out_counts;
};

uint64_t pair_hash(Rank source, Rank reader, uint64_t count) noexcept {
  const uint64_t words[] = {static_cast<uint64_t>(source) << 32 | static_cast<uint64_t>(reader), count};
  return hash_bytes(words, sizeof words);
}

void sum_up(std::span<const size_t> counts, std::vector<uint64_t>& offsets) {
  offsets.assign(1, 0);
  for (const size_t count : counts) offsets.push_back(offsets.back() + count);
}

// This rank's own counts; the rows of the peers come with their announcements.
Scratch::Buffers::Pairs& own_pairs(Execution& execution) {
  Scratch::Buffers::Pairs& pairs = execution.scratch.buffers().pairs;
  sum_up(execution.operation.counts, pairs.in_offsets);
  sum_up(execution.operation.out_counts, pairs.out_offsets);
  pairs.no_offsets.assign(pairs.in_offsets.size(), 0);
  pairs.rows.assign(static_cast<size_t>(execution.fabric.size), pairs.no_offsets.data());
  pairs.rows[static_cast<size_t>(execution.fabric.rank)] = pairs.in_offsets.data();
  return pairs;
}

struct Pair {
  Rank source, reader;
  uint64_t given, expected;
};
Status disagreement(const Operation& operation, const Pair& pair) {
  const Status status(
      Code::kFailedPrecondition,
      fmt::format("op {} {}: rank {} gives {} elements to rank {}, which expects {}", operation.epoch,
                  text(operation.call(), operation.label), pair.source, pair.given, pair.reader, pair.expected));
  return status.context("checking that all ranks make the same call");
}

class AllToAllV {
 public:
  explicit AllToAllV(Execution& execution)
      : execution_(execution),
        fabric_(execution.fabric),
        me_(fabric_.rank),
        buffers_(own_pairs(execution)),
        step_{.geometry = Geometry::paired(fabric_.size, offsets_), .items = execution.operation.items} {}

  Status run() {
    announce_all();
    SHARDCOMM_TRY(fabric_.control->collect(execution_.limit));
    find_rows();
    SHARDCOMM_TRY(check_pairs());
    count_traffic(execution_, step_);
    take_messages();
    return any_in_place_ ? take_in_place() : Status();
  }

 private:
  PairMessage message_of(Rank peer) const noexcept {
    return PairMessage(fabric_.control->payload_of(peer), fabric_.size);
  }

  void announce_all() {
    const Operation& operation = execution_.operation;
    const std::span<std::byte> payload = fabric_.control->payload();
    const size_t ranks = operation.counts.size(), begin = offsets_bytes(ranks);
    const size_t own_count = operation.counts[static_cast<size_t>(me_)];
    const size_t bytes = (buffers_.in_offsets.back() - own_count) * size_of(step_.items.front().dtype);
    const size_t room = payload.size() - begin - counts_bytes(ranks);
    is_inline_ = align_item(bytes) <= std::min(kMostInlineBytes, room / kItemAlign * kItemAlign);
    any_in_place_ = !is_inline_;
    auto& head = *reinterpret_cast<PairHead*>(payload.data());
    if (is_inline_) {
      head.entry = kTravels;
    } else {
      own_staged_ = write_table(execution_, step_).staged;
    }
    for (Rank peer = 0; peer < fabric_.size; ++peer) {
      own_in_sum_ += pair_hash(me_, peer, operation.counts[static_cast<size_t>(peer)]);
      own_out_sum_ += pair_hash(peer, me_, operation.out_counts[static_cast<size_t>(peer)]);
    }
    head.in_sum = own_in_sum_;
    head.out_sum = own_out_sum_;
    std::ranges::copy(buffers_.in_offsets, reinterpret_cast<uint64_t*>(payload.data() + sizeof(PairHead)));
    const size_t end = begin + (is_inline_ ? write_message(step_, me_, payload.data() + begin) : 0);
    std::ranges::copy(operation.out_counts, reinterpret_cast<uint64_t*>(payload.data() + end));
    announce(execution_, 0, end + counts_bytes(ranks));
  }

  void find_rows() noexcept {
    for (Rank r = 0; r < fabric_.size; ++r) {
      if (r != me_) buffers_.rows[static_cast<size_t>(r)] = message_of(r).in_offsets;
    }
  }

  // Every rank sees the same sums, so every rank fails, with the same text.
  Status check_pairs() const {
    uint64_t difference = own_in_sum_ - own_out_sum_;
    for (Rank r = 0; r < fabric_.size; ++r) {
      if (r != me_) difference += message_of(r).head.in_sum - message_of(r).head.out_sum;
    }
    return difference == 0 ? Status() : find_pair();
  }
  Status find_pair() const {
    for (Rank source = 0; source < fabric_.size; ++source) {
      for (Rank reader = 0; reader < fabric_.size; ++reader) {
        const uint64_t* const row = buffers_.rows[static_cast<size_t>(source)];
        const uint64_t given = row[reader + 1] - row[reader];
        const uint64_t expected = reader == me_ ? execution_.operation.out_counts[static_cast<size_t>(source)]
                                                : message_of(reader).out_counts[source];
        if (given != expected) return disagreement(execution_.operation, {source, reader, given, expected});
      }
    }
    return Status(Code::kInternal, "the sums of counts differ though all counts agree");
  }

  // Takes what travels, and leaves the rows of those who do not travel.
  void take_messages() {
    if (!any_in_place_) any_in_place_ = has_peer_in_place();
    if (!any_in_place_) copy_own_part(step_, me_);
    for (Rank r = 0; r < fabric_.size; ++r) {
      if (r == me_) continue;
      const PairMessage message = message_of(r);
      if (!message.travels()) continue;
      copy_from_message(step_, r, me_, message.bytes);
      buffers_.rows[static_cast<size_t>(r)] = buffers_.no_offsets.data();
    }
  }
  bool has_peer_in_place() const noexcept {
    for (Rank r = 0; r < fabric_.size; ++r) {
      if (r != me_ && !message_of(r).travels()) return true;
    }
    return false;
  }

  Status take_in_place() {
    SHARDCOMM_TRY(any_staged(fabric_, step_, own_staged_) ? run_staged(execution_, step_, own_staged_)
                                                          : copy_direct(execution_, step_, /*own_fingerprint=*/0));
    fabric_.control->finish_reading();
    return is_inline_ ? Status() : await_readers(execution_, step_.geometry);
  }

  Execution& execution_;
  Fabric& fabric_;
  const Rank me_;
  Scratch::Buffers::Pairs& buffers_;
  const PairOffsets offsets_{buffers_.rows, buffers_.out_offsets};
  const Step step_;  // sees the rows of `buffers_` as they are
  bool is_inline_ = false, any_in_place_ = false, own_staged_ = false;
  uint64_t own_in_sum_ = 0, own_out_sum_ = 0;
};

}  // namespace

size_t most_ranks_of_pairs() noexcept { return (kPayloadCapacity - offsets_bytes(0)) / (2 * sizeof(uint64_t)); }

Status all_to_all_v(Execution& execution) { return AllToAllV(execution).run(); }

}  // namespace shardcomm
