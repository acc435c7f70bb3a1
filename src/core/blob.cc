#include "core/blob.h"

#include "base/pod.h"
#include "bootstrap/bootstrap.h"

namespace shardcomm {

constexpr size_t kTextBytes = 480;  // of a failure's text

std::string pack(std::initializer_list<std::string_view> fields) {
  return bootstrap::pack(std::vector<std::string>(fields.begin(), fields.end()));
}

Result<std::vector<std::string>> unpack(std::string_view blob, size_t fields) {
  auto found = bootstrap::unpack(blob);
  if (found && found->size() == fields) return std::move(*found);
  return Status(Code::kFailedPrecondition,
                "a peer sent a message of another shape: do all ranks run the same version?");
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
