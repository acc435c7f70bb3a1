#include "zero/agree.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace shardcomm::zero {
namespace {

constexpr size_t kTextBytes = 500;

// A Status without its pointer. Texts that are too long lose their end.
struct PlainStatus {
  int32_t code;
  std::array<char, kTextBytes> text;
};

PlainStatus plain(const Status& status) {
  PlainStatus out{};
  out.code = static_cast<int32_t>(status.code());
  const std::string_view text = status.message();
  std::copy_n(text.begin(), std::min(text.size(), kTextBytes - 1), out.text.begin());
  return out;
}

template <class T>
Result<std::vector<T>> gather_values(Communicator& comm, const T& mine, size_t count, DType dtype,
                                     std::string_view label) {
  std::vector<T> all(static_cast<size_t>(comm.size()));
  SHARDCOMM_TRY(
      finish(comm.all_gather({.shard = &mine, .full = all.data(), .count = count, .dtype = dtype, .label = label},
                             StreamRef::caller()),
             comm));
  return all;
}

}  // namespace

Deadline operation_deadline(const Communicator& comm) {
  return std::chrono::steady_clock::now() + comm.options().timeout;
}

Status finish(Result<Work> work, const Communicator& comm) {
  SHARDCOMM_TRY(work.status());
  return work->synchronize(operation_deadline(comm));
}

Status agree(Communicator& comm, const Status& mine) {
  if (comm.size() == 1) return mine;
  SHARDCOMM_TRY_ASSIGN(const auto all, gather_values(comm, plain(mine), sizeof(PlainStatus), DType::kU8, "agree"));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].code == 0) continue;
    const auto code = static_cast<Code>(all[rank].code);
    return Status(code, fmt::format("rank {}: {}", rank, all[rank].text.data()));
  }
  return {};
}

Status agree_on(Communicator& comm, std::span<const Field> fields, std::string_view what) {
  const auto size = static_cast<size_t>(comm.size());
  std::vector<uint64_t> mine, all(fields.size() * size);
  for (const Field& field : fields) mine.push_back(field.value);
  SHARDCOMM_TRY(finish(
      comm.all_gather(
          {.shard = mine.data(), .full = all.data(), .count = mine.size(), .dtype = DType::kU64, .label = "agree"},
          StreamRef::caller()),
      comm));
  for (size_t i = 0; i < fields.size(); ++i) {
    for (size_t rank = 1; rank < size; ++rank) {
      const uint64_t first = all[i], other = all[rank * fields.size() + i];
      if (first == other) continue;
      return Status(Code::kFailedPrecondition,
                    fmt::format("{} differ between ranks: {} is {} on rank 0 and {} on rank {}", what, fields[i].name,
                                first, other, rank));
    }
  }
  return {};
}

Result<std::vector<std::string>> exchange_texts(Communicator& comm, std::string_view mine) {
  const uint64_t own_bytes = mine.size();
  SHARDCOMM_TRY_ASSIGN(const auto sizes, gather_values(comm, own_bytes, 1, DType::kU64, "exchange sizes"));
  size_t total = 0;
  std::vector<size_t> counts;
  for (const uint64_t bytes : sizes) {
    counts.push_back(static_cast<size_t>(bytes));
    total += counts.back();
  }
  std::string joined(total, '\0');
  SHARDCOMM_TRY(finish(
      comm.all_gather_v(
          {.shard = mine.data(), .full = joined.data(), .counts = counts, .dtype = DType::kU8, .label = "exchange"},
          StreamRef::caller()),
      comm));
  std::vector<std::string> texts;
  size_t begin = 0;
  for (const size_t count : counts) {
    texts.push_back(joined.substr(begin, count));
    begin += count;
  }
  return texts;
}

}  // namespace shardcomm::zero
