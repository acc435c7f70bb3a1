#include "tools/bench/memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace shardcomm::tools {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr std::byte kGuard{0x6B};
constexpr std::byte kPoison{0xA5};

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

struct Place {
  int64_t process = -1;
  int64_t fd = -1;  // -1: could not be made
};

// What rank 0 made, seen by the others through /proc. -1 and errno where that is not allowed.
int open_place(const Place& place) {
  if (place.fd < 0) {
    errno = ENOMEM;
    return -1;
  }
  return open(fmt::format("/proc/{}/fd/{}", place.process, place.fd).c_str(), O_RDWR | O_CLOEXEC);
}

}  // namespace

Result<Buffer> Buffer::make(Communicator& comm, BenchMemory memory, size_t bytes, size_t offset_bytes,
                            std::string_view label) {
  Buffer buffer;
  buffer.bytes_ = bytes;
  buffer.guard_bytes_ = kPage + offset_bytes;
  const size_t whole = buffer.guard_bytes_ + bytes + kPage;
  if (memory == BenchMemory::kWindow) {
    SHARDCOMM_TRY_ASSIGN(Window made, comm.allocate_window(whole, label));
    buffer.window_.emplace(std::move(made));
    buffer.base_ = buffer.window_->data();
  } else if (memory == BenchMemory::kPool) {
    SHARDCOMM_TRY_ASSIGN(MemoryPool made, MemoryPool::create(comm, {.initial_bytes = whole, .label = label}));
    buffer.pool_.emplace(std::move(made));
    SHARDCOMM_TRY_ASSIGN(buffer.base_, buffer.pool_->take(whole, kPage));
  } else {
    buffer.memory_.reset(new (std::align_val_t{kPage}, std::nothrow) std::byte[whole]);
    if (buffer.memory_ == nullptr)
      return Status(Code::kOutOfMemory, "no memory for a buffer of " + std::to_string(whole) + " bytes");
    buffer.base_ = buffer.memory_.get();
  }
  return buffer;
}

void Buffer::Free::operator()(std::byte* memory) const { operator delete[](memory, std::align_val_t{kPage}); }

void Buffer::poison() {
  std::memset(base_, static_cast<int>(kGuard), guard_bytes_);
  std::memset(data(), static_cast<int>(kPoison), bytes_);
  std::memset(data() + bytes_, static_cast<int>(kGuard), kPage);
}

size_t Buffer::count_stray(size_t used_bytes) const {
  const auto differs = [](std::byte expected) { return [expected](std::byte b) { return b != expected; }; };
  return static_cast<size_t>(std::count_if(base_, data(), differs(kGuard)) +
                             std::count_if(data() + used_bytes, data() + bytes_, differs(kPoison)) +
                             std::count_if(data() + bytes_, data() + bytes_ + kPage, differs(kGuard)));
}

Result<Pages> Pages::map(int fd, size_t bytes, bool huge) {
  const int flags = fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  // Huge pages come only to mappings that begin on one: more is reserved, and the mapping put over the middle of it.
  const size_t reserved = huge ? bytes + kHugePage : bytes;
  void* const free = mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (free == MAP_FAILED) return Status::native(Origin::kErrno, errno, fmt::format("mmap {} bytes", reserved));
  Pages pages(static_cast<std::byte*>(free), reserved);
  if (huge) pages.data_ += -reinterpret_cast<uintptr_t>(free) % kHugePage;
  void* const base = mmap(pages.data_, bytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0);
  if (base == MAP_FAILED) return Status::native(Origin::kErrno, errno, fmt::format("mmap {} bytes", bytes));
  if (huge) (void)madvise(base, bytes, MADV_HUGEPAGE);
  return pages;
}

Result<Pages> Pages::make(size_t bytes, bool huge) { return map(-1, bytes, huge); }

Result<Pages> Pages::make_shared(Communicator& comm, size_t bytes, bool huge) {
  const StreamRef stream = StreamRef::caller();
  const Descriptor made(comm.rank() == 0 ? memfd_create("shardcomm-bench", MFD_CLOEXEC) : -1);
  Place place{getpid(), made.get()};
  if (made.get() >= 0 && ftruncate(made.get(), static_cast<off_t>(bytes)) != 0) place.fd = -1;
  SHARDCOMM_TRY(comm.broadcast({.data = &place, .count = sizeof place, .dtype = DType::kU8}, stream).status());
  const Descriptor opened(open_place(place));
  const int32_t mine = opened.get() >= 0 ? 0 : errno;
  std::vector<int32_t> errors(static_cast<size_t>(comm.size()));
  SHARDCOMM_TRY(
      comm.all_gather({.shard = &mine, .full = errors.data(), .count = 1, .dtype = DType::kI32}, stream).status());
  for (size_t rank = 0; rank < errors.size(); ++rank) {
    if (errors[rank] == 0) continue;
    return Status::native(Origin::kErrno, errors[rank], fmt::format("rank {} mapping memory of rank 0", rank));
  }
  return map(opened.get(), bytes, huge);
}

Pages::Pages(Pages&& other) noexcept
    : reserved_(std::exchange(other.reserved_, nullptr)), data_(other.data_), bytes_(other.bytes_) {}

Pages& Pages::operator=(Pages&& other) noexcept {
  std::swap(reserved_, other.reserved_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Pages::~Pages() {
  if (reserved_ != nullptr) munmap(reserved_, bytes_);
}

size_t available_memory_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  size_t kibibytes = 0;
  while (file >> name >> kibibytes) {
    if (name == "MemAvailable:") return kibibytes * 1024;
    std::getline(file, unit);
  }
  return SIZE_MAX;
}

}  // namespace shardcomm::tools
