// Blobs that ranks exchange while they meet: fields, each after its length (u64, little endian).
#include "core/blob.h"

#include <cstring>

#include "base/pod.h"

namespace shardcomm {

constexpr size_t kTextBytes = 480;  // of a failure's text

std::string pack(std::initializer_list<std::string_view> fields) {
  std::string blob;
  for (const std::string_view field : fields) {
    const uint64_t bytes = field.size();
    blob.append(as_bytes(bytes));
    blob.append(field);
  }
  return blob;
}

Result<std::vector<std::string>> unpack(std::string_view blob, size_t fields) {
  std::vector<std::string> found;
  for (uint64_t bytes = 0; blob.size() >= sizeof bytes; blob.remove_prefix(bytes)) {
    std::memcpy(&bytes, blob.data(), sizeof bytes);
    blob.remove_prefix(sizeof bytes);
    if (bytes > blob.size()) break;
    found.emplace_back(blob.substr(0, bytes));
  }
  if (found.size() != fields || !blob.empty()) {
    return Status(Code::kFailedPrecondition,
                  "a peer sent a message of another shape: do all ranks run the same version?");
  }
  return found;
}

std::string pack_status(const Status& status) {
  const auto code = static_cast<int32_t>(status.code());
  const std::string_view text = status.message().substr(0, kTextBytes);  // blobs have a limit; labels have none
  return pack({as_bytes(code), text});
}

Status first_failure(std::span<const std::string> blobs) {
  for (size_t r = 0; r < blobs.size(); ++r) {
    SHARDCOMM_TRY_ASSIGN(const auto fields, unpack(blobs[r], 2));
    const int32_t code = from_bytes<int32_t>(fields[0]).value_or(0);
    if (code != 0) return Status(static_cast<Code>(code), "rank " + std::to_string(r) + ": " + fields[1]);
  }
  return {};
}

}  // namespace shardcomm
