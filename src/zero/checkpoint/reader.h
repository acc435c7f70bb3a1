// One complete checkpoint, opened: what its manifest says is there has been compared with what its files' headers say.
// Reading is by element, wherever the pieces lie. Thread rule: one thread at a time.
#pragma once
#include <map>
#include <span>
#include <string>
#include <vector>

#include "zero/checkpoint/file_io.h"
#include "zero/checkpoint/manifest.h"

namespace shardcomm::zero {

class CheckpointReader {
 public:
  // kDataLoss names the file and what is wrong with it; kUnavailable when there is no manifest.
  static Result<CheckpointReader> open(const std::string& directory);

  const Manifest& manifest() const noexcept { return manifest_; }
  std::vector<std::string> files() const;
  uint64_t total_bytes() const;  // of the files, their headers included

  // Elements [offset, offset + values.size()) of a tensor that the manifest has.
  Status read(const std::string& tensor, size_t offset, std::span<float> values) const;
  // Compares the checksums of the pieces whose number is `share` modulo `shares`, so that ranks can divide the work.
  Status verify(size_t share, size_t shares) const;
  Status verify_tensor(const std::string& tensor) const;

 private:
  struct OpenFile {
    File file;
    std::map<std::string, uint64_t> data_offsets;  // bytes from the start of the file, by tensor
    std::map<std::string, size_t> counts;          // elements, by tensor
  };
  CheckpointReader(std::string directory, Manifest manifest)
      : directory_(std::move(directory)), manifest_(std::move(manifest)) {}
  Status open_file(const std::string& name);
  Status check_pieces(const std::string& tensor, const std::vector<ManifestPiece>& pieces) const;
  Status verify_piece(const std::string& tensor, const ManifestPiece& piece) const;

  std::string directory_;
  Manifest manifest_;
  std::map<std::string, OpenFile> files_;
};

}  // namespace shardcomm::zero
