// The rules of communicator.h that can be checked before any peer is involved; equal on every rank.
#include "core/arguments.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>

namespace shardcomm {
namespace {

struct Extent {
  uintptr_t begin, end;
};

Status invalid(std::string text) { return Status(Code::kInvalidArgument, std::move(text)); }

// Bytes of count elements times `times`, or nothing where no object can be as large: half the address space, so that
// a pointer and such a size never wrap.
std::optional<size_t> bytes_of(size_t count, size_t times, DType dtype) {
  size_t elements = 0, bytes = 0;
  if (__builtin_mul_overflow(count, times, &elements)) return std::nullopt;
  if (__builtin_mul_overflow(elements, size_of(dtype), &bytes) || bytes > PTRDIFF_MAX) return std::nullopt;
  return bytes;
}

Extent extent(const void* pointer, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(pointer);
  return {begin, begin + bytes};
}

bool overlap(Extent a, Extent b) { return a.begin < b.end && b.begin < a.end && a.begin != a.end && b.begin != b.end; }

Status check_dtype(DType dtype) {
  return is_valid(dtype)
             ? Status()
             : invalid(fmt::format("dtype {} is none of 0 to {}", static_cast<int>(dtype), kDTypeCount - 1));
}

Status check_op(DType dtype, ReduceOp op) {
  SHARDCOMM_TRY(check_dtype(dtype));
  if (!is_valid(op)) return invalid(fmt::format("op {} is none of 0 to {}", static_cast<int>(op), kReduceOpCount - 1));
  if (!supports(dtype, op))
    return Status(Code::kUnsupported, fmt::format("{} of {} is not supported", name(op), name(dtype)));
  return {};
}

Status check_scale(DType dtype, double scale) {
  if (scale == 1) return {};
  if (!has_scale(dtype))
    return Status(Code::kUnsupported,
                  fmt::format("a scale of {} for {}: only floating and complex types have one", scale, name(dtype)));
  return std::isfinite(scale) ? Status() : invalid(fmt::format("a scale of {} is not a finite number", scale));
}

[[gnu::cold, gnu::noinline]] Status bad_pointer(const void* pointer, DType dtype, std::string_view what) {
  if (pointer == nullptr) return invalid(fmt::format("{} is null", what));
  return invalid(fmt::format("{} is not aligned to its {} elements", what, name(dtype)));
}

Status check_pointer(const void* pointer, size_t bytes, DType dtype, std::string_view what) {
  const bool aligned = (reinterpret_cast<uintptr_t>(pointer) & (align_of(dtype) - 1)) == 0;  // a power of two
  if (bytes == 0 || (pointer != nullptr && aligned)) return {};
  return bad_pointer(pointer, dtype, what);
}

// A shard and a whole of which it is, or is not, the part at `offset_bytes`.
Status check_parts(const void* shard, size_t shard_bytes, const void* full, size_t full_bytes, size_t offset_bytes,
                   DType dtype) {
  SHARDCOMM_TRY(check_pointer(shard, shard_bytes, dtype, "shard"));
  SHARDCOMM_TRY(check_pointer(full, full_bytes, dtype, "full"));
  const bool in_place = shard == static_cast<const std::byte*>(full) + offset_bytes;
  if (in_place || !overlap(extent(shard, shard_bytes), extent(full, full_bytes))) return {};
  return invalid("shard overlaps full without being this rank's part of it");
}

// The common case, in a few instructions; false: check_even() has to look.
bool is_plainly_even(const void* shard, const void* full, size_t count, DType dtype, Rank rank, int size) {
  constexpr size_t kMostCount = size_t{1} << 32;  // so that no product wraps
  if (count > kMostCount || shard == nullptr || full == nullptr) return false;
  const size_t element = size_of(dtype), bytes = count * element;
  const auto begin = reinterpret_cast<uintptr_t>(shard), whole_begin = reinterpret_cast<uintptr_t>(full);
  const bool aligned = ((begin | whole_begin) & (align_of(dtype) - 1)) == 0;
  const bool in_place = begin == whole_begin + bytes * static_cast<size_t>(rank);
  const bool apart = begin + bytes <= whole_begin || whole_begin + bytes * static_cast<size_t>(size) <= begin;
  return aligned && (in_place || apart);
}

Status check_even(const void* shard, const void* full, size_t count, DType dtype, Rank rank, int size) {
  const auto whole = bytes_of(count, static_cast<size_t>(size), dtype);
  if (!whole) return invalid(fmt::format("count {} times {} ranks is beyond the address space", count, size));
  const size_t shard_bytes = count * size_of(dtype);
  return check_parts(shard, shard_bytes, full, *whole, shard_bytes * static_cast<size_t>(rank), dtype);
}

struct Extents {
  size_t before, whole;  // bytes of the shares of ranks before this one, and of all
};
Result<Extents> add_up(std::span<const size_t> counts, DType dtype, Rank rank, int size, std::string_view what) {
  if (counts.size() != static_cast<size_t>(size))
    return invalid(fmt::format("{} {} for {} ranks", counts.size(), what, size));
  const auto beyond = [&] { return invalid(fmt::format("the sum of {} is beyond the address space", what)); };
  size_t sum = 0, before = 0;
  for (size_t r = 0; r < counts.size(); ++r) {
    if (r == static_cast<size_t>(rank)) before = sum;
    if (__builtin_add_overflow(sum, counts[r], &sum)) return beyond();
  }
  const auto whole = bytes_of(sum, 1, dtype);
  if (!whole) return beyond();
  return Extents{before * size_of(dtype), *whole};
}

Status check_ragged(const void* shard, const void* full, std::span<const size_t> counts, DType dtype, Rank rank,
                    int size) {
  SHARDCOMM_TRY_ASSIGN(const Extents extents, add_up(counts, dtype, rank, size, "counts"));
  return check_parts(shard, counts[static_cast<size_t>(rank)] * size_of(dtype), full, extents.whole, extents.before,
                     dtype);
}

Status check_pairs(const Operation& operation, const Item& item, Rank rank, int size) {
  if (static_cast<size_t>(size) > most_ranks_of_pairs()) {
    return Status(Code::kUnsupported, fmt::format("all_to_all_v among {} ranks: at most {} can tell each other their "
                                                  "counts",
                                                  size, most_ranks_of_pairs()));
  }
  SHARDCOMM_TRY_ASSIGN(const Extents in, add_up(operation.counts, item.dtype, rank, size, "in_counts"));
  SHARDCOMM_TRY_ASSIGN(const Extents out, add_up(operation.out_counts, item.dtype, rank, size, "out_counts"));
  SHARDCOMM_TRY(check_pointer(item.in, in.whole, item.dtype, "in"));
  SHARDCOMM_TRY(check_pointer(item.out, out.whole, item.dtype, "out"));
  return overlap(extent(item.in, in.whole), extent(item.out, out.whole)) ? invalid("out overlaps in") : Status();
}

// Two buffers of equal size that are apart, or the same where `same_allowed`.
Status check_pair(const void* in, const void* out, std::optional<size_t> bytes, DType dtype, bool same_allowed) {
  if (!bytes) return invalid("count is beyond the address space");
  SHARDCOMM_TRY(check_pointer(in, *bytes, dtype, "in"));
  SHARDCOMM_TRY(check_pointer(out, *bytes, dtype, "out"));
  if ((same_allowed && in == out) || !overlap(extent(in, *bytes), extent(out, *bytes))) return {};
  return invalid(same_allowed ? "out overlaps in without being equal to it" : "out overlaps in");
}

Status check_root(Rank root, int size) {
  if (root >= 0 && root < size) return {};
  return invalid(fmt::format("root {} is out of range: the group has {} ranks", root, size));
}

// The only buffer of an item, of count elements.
Status check_one(const void* buffer, const Item& item, std::string_view what) {
  const auto bytes = bytes_of(item.count, 1, item.dtype);
  if (!bytes) return invalid("count is beyond the address space");
  return check_pointer(buffer, *bytes, item.dtype, what);
}

const void* shard_of(const CollectiveTraits& has, const Item& item) { return has.reduces() ? item.out : item.in; }
const void* full_of(const CollectiveTraits& has, const Item& item) { return has.reduces() ? item.in : item.out; }

bool is_plainly_right(const CollectiveTraits& has, const Item& item, Rank rank, int size) {
  const bool has_shards = (has.pattern == Pattern::kGather || has.pattern == Pattern::kReduce) && !has.is_ragged;
  return has_shards && (has.reduces() ? supports(item.dtype, item.op) && item.scale == 1 : is_valid(item.dtype)) &&
         is_plainly_even(shard_of(has, item), full_of(has, item), item.count, item.dtype, rank, size);
}

[[gnu::noinline]] Status check_item(const Operation& operation, const Item& item, Rank rank, int size) {
  const CollectiveTraits& has = traits(operation.call().collective);
  const auto ranks = static_cast<size_t>(size);
  SHARDCOMM_TRY(has.reduces() ? check_op(item.dtype, item.op) : check_dtype(item.dtype));
  if (has.reduces()) SHARDCOMM_TRY(check_scale(item.dtype, item.scale));
  switch (has.pattern) {
    case Pattern::kGather:
    case Pattern::kReduce: {
      const void* const shard = shard_of(has, item);
      const void* const full = full_of(has, item);
      if (has.is_ragged) return check_ragged(shard, full, operation.counts, item.dtype, rank, size);
      return check_even(shard, full, item.count, item.dtype, rank, size);
    }
    case Pattern::kReduceAll:
      return check_pair(item.in, item.out, bytes_of(item.count, 1, item.dtype), item.dtype, /*same_allowed=*/true);
    case Pattern::kBroadcast: return check_one(item.in, item, "data");
    case Pattern::kGatherTo:
    case Pattern::kScatter: {
      const bool is_root = rank == root_of(operation.call());
      const void* const shard = has.goes_to_root() ? item.in : item.out;
      const void* const full = has.goes_to_root() ? item.out : item.in;
      if (is_root) return check_even(shard, full, item.count, item.dtype, rank, size);
      return check_one(shard, item, "shard");
    }
    case Pattern::kReduceTo:
      if (rank != root_of(operation.call())) return check_one(item.in, item, "in");
      return check_pair(item.in, item.out, bytes_of(item.count, 1, item.dtype), item.dtype, /*same_allowed=*/true);
    case Pattern::kExchangeV: return check_pairs(operation, item, rank, size);
    case Pattern::kExchange:
      return check_pair(item.in, item.out, bytes_of(item.count, ranks, item.dtype), item.dtype, /*same_allowed=*/false);
  }
  return {};
}

}  // namespace

Status check_root_of_many(Rank root, int size) {
  SHARDCOMM_TRY(check_root(root, size));
  if (root <= kMostRootOfMany) return {};
  return Status(Code::kUnsupported, fmt::format("root {} of many tensors is beyond {}", root, kMostRootOfMany));
}

Status check(const Operation& operation, Rank rank, int size) {
  const CollectiveTraits& has = traits(operation.call().collective);
  if (has.has_root) SHARDCOMM_TRY(check_root(root_of(operation.call()), size));
  for (size_t i = 0; i < operation.items.size(); ++i) {
    if (is_plainly_right(has, operation.items[i], rank, size)) [[likely]]
      continue;
    Status checked = check_item(operation, operation.items[i], rank, size);
    if (!checked.ok()) return has.is_many ? checked.context(fmt::format("checking item {}", i)) : checked;
  }
  return {};
}

}  // namespace shardcomm
