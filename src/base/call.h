// A call: what ranks compare before anything moves, what the flight recorder keeps, and how both are told to people.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "shardcomm/collective.h"
#include "shardcomm/types.h"

namespace shardcomm {

inline constexpr size_t kLabelBytes = 32;  // with the closing zero
// The part of a label that ranks compare and records keep.
constexpr std::string_view kept_label(std::string_view label) noexcept { return label.substr(0, kLabelBytes - 1); }

enum class CallKind : uint8_t {
  kCollective,
  kMosaic,     // an all_gather of a mosaic window, in which no bytes move
  kAgreement,  // ranks agree on a window or a split, which the label names; the fields of a collective mean nothing
};

// Equal on all ranks that make the same call. Lies in messages as it is, so it has no padding and no pointers.
struct Call {
  Collective collective{};
  DType dtype{};  // of a _many form with a root, half of the root, like `op`; of other _many forms nothing
  ReduceOp op{};
  CallKind kind{};
  int32_t root_or_items = 0;  // the root; of a _many form the number of items
  uint64_t count = 0;  // elements, as in the call; of all ranks or items together for the ragged and _many forms;
                       // 0 where each rank has counts of its own
  bool operator==(const Call&) const = default;
};
static_assert(sizeof(Call) == 16 && std::is_trivially_copyable_v<Call>);
static_assert(std::has_unique_object_representations_v<Call>);

// A _many form has a root beside its items, in the place of dtype and op: its tensors have their own.
inline constexpr Rank kMostRootOfMany = UINT16_MAX;
constexpr Rank root_of(const Call& call) noexcept {
  if (!traits(call.collective).is_many) return call.root_or_items;
  return static_cast<Rank>(call.dtype) | static_cast<Rank>(call.op) << 8;
}
constexpr void set_root(Call& call, Rank root) noexcept {
  if (!traits(call.collective).is_many) {
    call.root_or_items = root;
  } else {
    call.dtype = static_cast<DType>(root & UINT8_MAX);
    call.op = static_cast<ReduceOp>(root >> 8 & UINT8_MAX);
  }
}

// The fields of a call that mean something. Several tensors may differ in dtype and op, so theirs mean nothing.
struct CallFields {
  bool dtype = false, count = false, op = false, root = false, items = false;
};
CallFields fields_of(const Call& call) noexcept;

// "all_gather f32 1024 'gather h.3'": these fields, for people.
std::string text(const Call& call, std::string_view label);

// One side of a message between two ranks. It has no part in the order of collectives.
struct MessageCall {
  bool is_send;
  DType dtype;
  Rank peer;
  int32_t tag;  // negative: the library's own
  uint64_t count;
};
std::string text(const MessageCall& call, std::string_view label);  // "send f32 1024 to rank 1 tag 3 'label'"

}  // namespace shardcomm
