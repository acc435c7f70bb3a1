// The pages of a segment: its bytes, rounded up to pages, then one page with the trailer that proves which segment it
// is.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#include "memory/memory.h"

namespace shardcomm {

inline constexpr char kSegmentName[] = "shardcomm";  // how the memfd's name begins

struct SegmentTrailer {
  uint64_t size_bytes;
  Token segment;
};

// Bytes of the file behind a segment; 0 where that would overflow.
size_t file_bytes_of(size_t segment_bytes) noexcept;

// An owned mapping. Immutable: any thread.
class Mapping {
 public:
  // Maps the whole file behind a segment of `segment_bytes`. The fd may be closed afterwards.
  static Result<std::shared_ptr<Mapping>> map(int fd, size_t segment_bytes);
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  std::byte* data() const noexcept { return base_; }
  SegmentTrailer* trailer() const noexcept;

 private:
  Mapping(std::byte* base, size_t file_bytes) noexcept : base_(base), file_bytes_(file_bytes) {}
  std::byte* base_;
  size_t file_bytes_;
};

// The segments that this process owns or has mapped from itself, by token, so that ranks which are threads share one
// mapping and none pulls it away from another.
void publish_mapping(const Token& segment, const std::shared_ptr<Mapping>& mapping);
std::shared_ptr<Mapping> find_mapping(const Token& segment);  // null if gone

}  // namespace shardcomm
