#include "zero/transfer.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/call.h"

namespace shardcomm::zero {
namespace {

// The transfers cover `bytes` together, in which a bucket begins at offset_of(bucket).
template <class OffsetOf>
std::vector<Transfer> divide(std::span<const UnitBucket> buckets, size_t bucket_bytes, size_t bytes,
                             OffsetOf offset_of) {
  std::vector<Transfer> transfers;
  size_t moved_bytes = 0;  // by the last transfer, in values
  for (uint32_t b = 0; b < buckets.size(); ++b) {
    moved_bytes += buckets[b].full_bytes();
    if (transfers.empty() || (bucket_bytes != 0 && moved_bytes > bucket_bytes)) {
      transfers.push_back({.first_bucket = b, .end_bucket = b, .begin_bytes = offset_of(buckets[b]), .bytes = 0});
      moved_bytes = buckets[b].full_bytes();
    }
    transfers.back().end_bucket = b + 1;
  }
  size_t end_bytes = bytes;
  for (size_t i = transfers.size(); i-- > 0;) {
    transfers[i].bytes = end_bytes - transfers[i].begin_bytes;
    end_bytes = transfers[i].begin_bytes;
  }
  return transfers;
}

}  // namespace

std::vector<Transfer> divide_values(const UnitLayout& unit, size_t bucket_bytes) {
  return divide(unit.buckets, bucket_bytes, unit.value_bytes,
                [](const UnitBucket& bucket) { return bucket.full_offset_bytes; });
}

std::vector<Transfer> divide_gradients(const UnitLayout& unit, size_t bucket_bytes) {
  const auto frozen = std::find_if(unit.buckets.begin(), unit.buckets.end(),
                                   [](const UnitBucket& bucket) { return !bucket.trainable; });
  return divide({unit.buckets.begin(), frozen}, bucket_bytes, unit.gradient_bytes,
                [](const UnitBucket& bucket) { return bucket.gradient_offset_bytes; });
}

std::string transfer_name(const UnitLayout& unit, const std::vector<Transfer>& transfers, size_t index) {
  return transfers.size() == 1 ? unit.name : fmt::format("{} {}/{}", unit.name, index + 1, transfers.size());
}

std::string collective_label(std::string_view verb, std::string_view name) {
  std::string label = fmt::format("{} {}", verb, name);
  if (label.size() < kLabelBytes) return label;
  const size_t kept = kLabelBytes - 1 - verb.size() - 3;
  return fmt::format("{} ..{}", verb, name.substr(name.size() - kept));
}

bool names_operation_of(std::string_view text, std::string_view unit) {
  for (const std::string_view verb : {"gather", "publish", "reduce", "spread"}) {
    const std::string quoted = fmt::format("'{}", collective_label(verb, unit));
    const size_t at = text.find(quoted);
    if (at == std::string_view::npos) continue;
    const std::string_view rest = text.substr(at + quoted.size());
    if (rest.starts_with('\'') || rest.starts_with(' ')) return true;
  }
  return false;
}

}  // namespace shardcomm::zero
