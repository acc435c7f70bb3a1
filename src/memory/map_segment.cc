// The peer's side of a segment: find the owner's file, distrust it, map it, and look for the token.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "memory/mapping.h"
#include "memory/memory.h"

namespace shardcomm {
namespace {

Status unreachable(const SegmentCard& card, std::string_view why) {
  return Status(Code::kUnavailable,
                fmt::format("segment of {} bytes of process {} cannot be mapped from process {}: {}", card.size_bytes,
                            card.pid, getpid(), why));
}

Status not_the_segment(const SegmentCard& card) {
  return unreachable(card, "its file descriptor means another file here (another node or container, or it was closed)");
}

// The name is looked at before the file is opened: should the number mean something else here, opening it could block
// or have effects of its own.
Result<int> open_file(const SegmentCard& card) {
  const std::string path = fmt::format("/proc/{}/fd/{}", card.pid, card.fd);
  const std::string wanted = fmt::format("/memfd:{}:", kSegmentName);
  char target[64];
  const ssize_t length = readlink(path.c_str(), target, sizeof target);
  if (length < 0) {
    const Status native = Status::native(Origin::kErrno, errno, "readlink " + path);
    return unreachable(
        card, fmt::format("{} (it is in another container or node or another user's, or has ended)", native.message()));
  }
  if (!std::string_view(target, static_cast<size_t>(length)).starts_with(wanted)) return not_the_segment(card);
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (fd >= 0) return fd;
  return unreachable(card, Status::native(Origin::kErrno, errno, "open " + path).message());
}

// Of the expected length, and staying so.
bool is_sealed_file_of(int fd, size_t file_bytes) {
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;
  struct stat info {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size != static_cast<off_t>(file_bytes)) return false;
  const int seals = fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & kSeals) == kSeals;
}

}  // namespace

SegmentView::SegmentView(std::shared_ptr<Mapping> mapping, size_t bytes)
    : mapping_(std::move(mapping)), data_(mapping_->data()), size_bytes_(bytes) {}

Result<SegmentView> map_segment(const SegmentCard& card) {
  const size_t file_bytes = file_bytes_of(card.size_bytes);
  if (file_bytes == 0) return unreachable(card, "no segment has that size");
  if (card.process == process_token()) {
    auto mapping = find_mapping(card.segment);
    if (mapping == nullptr) return unreachable(card, "it is gone");
    if (mapping->trailer()->size_bytes != card.size_bytes) return unreachable(card, "it has another size");
    return SegmentView(std::move(mapping), card.size_bytes);
  }
  SHARDCOMM_TRY_ASSIGN(const int fd, open_file(card));
  if (!is_sealed_file_of(fd, file_bytes)) {
    close(fd);
    return not_the_segment(card);
  }
  auto mapped = Mapping::map(fd, card.size_bytes);
  close(fd);
  if (!mapped.ok()) return mapped.status().context(fmt::format("mapping a segment of process {}", card.pid));
  const SegmentTrailer& trailer = *mapped.value()->trailer();
  if (trailer.segment != card.segment || trailer.size_bytes != card.size_bytes) {
    return not_the_segment(card);
  }
  return SegmentView(std::move(mapped).value(), card.size_bytes);
}

}  // namespace shardcomm
