// The owner's side of a segment: a sealed memfd with a trailer.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "base/text.h"
#include "memory/mapping.h"
#include "memory/memory.h"
#include "memory/token.h"

namespace shardcomm {
namespace {

constexpr size_t kNameBytes = 200;  // the kernel takes 249

// Closes what it holds, unless released.
class Descriptor {
 public:
  explicit Descriptor(int fd) noexcept : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const noexcept { return fd_; }
  int release() noexcept { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// Growing a file beyond RLIMIT_FSIZE would end the process with SIGXFSZ.
Status check_file_limit(size_t file_bytes, std::string_view label) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || file_bytes <= limit.rlim_cur)
    return {};
  return Status(Code::kOutOfMemory, fmt::format("{} needs {}, the file size limit (ulimit -f) is {}", label,
                                                readable_bytes(file_bytes), readable_bytes(limit.rlim_cur)));
}

Status failed(std::string_view call, std::string_view label) {
  return Status::native(Origin::kErrno, errno, fmt::format("{} for {}", call, label));
}

// The fd of a zero-filled file of that size, which nobody can resize under a reader (that would be SIGBUS).
Result<int> create_file(size_t file_bytes, std::string_view label) {
  const std::string name = fmt::format("{}:{}", kSegmentName, label).substr(0, kNameBytes);
  Descriptor file(memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (file.get() < 0) return failed("memfd_create", label);
  if (ftruncate(file.get(), static_cast<off_t>(file_bytes)) != 0) return failed("ftruncate", label);
  if (fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) return failed("sealing", label);
  return file.release();
}

}  // namespace

Result<Segment> Segment::create(size_t bytes, std::string_view label) {
  SHARDCOMM_TRY(check_memory_for(bytes, label));
  const size_t file_bytes = file_bytes_of(bytes);
  if (file_bytes == 0) return Status(Code::kOutOfMemory, fmt::format("{} needs {} bytes", label, bytes));
  SHARDCOMM_TRY(check_file_limit(file_bytes, label));
  SHARDCOMM_TRY_ASSIGN(const int fd, create_file(file_bytes, label));
  Descriptor file(fd);
  auto mapped = Mapping::map(fd, bytes);
  if (!mapped.ok()) return mapped.status().context(fmt::format("creating {}", label));
  const auto mapping = std::move(mapped).value();
  const SegmentCard card{.pid = getpid(),
                         .fd = fd,
                         .size_bytes = bytes,
                         .process = process_token(),
                         .segment = random_token(),
                         .base_address = reinterpret_cast<uint64_t>(mapping->data())};
  *mapping->trailer() = {.size_bytes = bytes, .segment = card.segment};
  publish_mapping(card.segment, mapping);
  return Segment(mapping, file.release(), card);
}

Segment::Segment(std::shared_ptr<Mapping> mapping, int fd, const SegmentCard& card)
    : mapping_(std::move(mapping)), fd_(fd), card_(card) {}

Segment::Segment(Segment&& other) noexcept
    : mapping_(std::move(other.mapping_)), fd_(std::exchange(other.fd_, -1)), card_(other.card_) {}

Segment& Segment::operator=(Segment&& other) noexcept {
  std::swap(mapping_, other.mapping_);
  std::swap(fd_, other.fd_);
  std::swap(card_, other.card_);
  return *this;
}

Segment::~Segment() { close_fd(); }

std::byte* Segment::data() const noexcept { return mapping_->data(); }

Allocation Segment::allocation() const noexcept {
  return {.base = data(), .bytes = size_bytes(), .device = {}, .handle = card_};
}

void Segment::free_pages() noexcept {
  (void)fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(size_bytes()));
}

void Segment::close_fd() noexcept {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

}  // namespace shardcomm
