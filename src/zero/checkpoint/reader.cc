#include "zero/checkpoint/reader.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <memory>

#include "zero/checkpoint/safetensors.h"

namespace shardcomm::zero {
namespace {

constexpr size_t kMaxManifestBytes = size_t{1} << 30;
constexpr size_t kPieceBytes = size_t{1} << 20;  // read at a time

}  // namespace

Result<CheckpointReader> CheckpointReader::open(const std::string& directory) {
  const std::string path = fmt::format("{}/{}", directory, kManifestName);
  if (!is_file(path)) {
    return Status(Code::kUnavailable,
                  fmt::format("{} is not a complete checkpoint: it has no {}", directory, kManifestName));
  }
  SHARDCOMM_TRY_ASSIGN(const std::string text, read_text(path, kMaxManifestBytes));
  SHARDCOMM_TRY_ASSIGN(Manifest manifest, parse_manifest(text, path));
  CheckpointReader reader(directory, std::move(manifest));
  for (const auto& [name, tensor] : reader.manifest_.tensors) {
    for (const ManifestPiece& piece : tensor.pieces) {
      if (!reader.files_.contains(piece.file)) SHARDCOMM_TRY(reader.open_file(piece.file));
    }
    SHARDCOMM_TRY(reader.check_pieces(name, tensor.pieces));
  }
  return reader;
}

Status CheckpointReader::open_file(const std::string& name) {
  auto opened = File::open(directory_ + "/" + name);
  if (!opened.ok())
    return Status(Code::kDataLoss, fmt::format("{} is named in the manifest: {}", name, opened.status().message()));
  OpenFile entry{std::move(opened).value(), {}, {}};
  const uint64_t file_bytes = entry.file.size_bytes();
  const std::string& path = entry.file.path();
  std::string head(static_cast<size_t>(std::min<uint64_t>(8, file_bytes)), '\0');
  SHARDCOMM_TRY(entry.file.read_at(0, std::as_writable_bytes(std::span(head))));
  SHARDCOMM_TRY_ASSIGN(const uint64_t head_bytes, safetensors_head_bytes(head, file_bytes, path));
  head.resize(static_cast<size_t>(head_bytes));
  SHARDCOMM_TRY(entry.file.read_at(0, std::as_writable_bytes(std::span(head))));
  const ManifestFile& expected = manifest_.files.at(name);
  if (head.size() != expected.head_bytes || XXH3_64bits(head.data(), head.size()) != expected.head_checksum) {
    return Status(Code::kDataLoss, fmt::format("{}: its header does not have its checksum", path));
  }
  SHARDCOMM_TRY_ASSIGN(const SafetensorsHeader header, parse_safetensors_header(head, file_bytes, path));
  for (const StoredTensor& tensor : header.tensors) {
    if (tensor.dtype != "F32")
      return Status(Code::kDataLoss, fmt::format("{}: tensor {} is not of dtype F32", path, tensor.name));
    entry.data_offsets[tensor.name] = header.data_begin + tensor.begin;
    entry.counts[tensor.name] = static_cast<size_t>(tensor.end - tensor.begin) / sizeof(float);
  }
  files_.emplace(name, std::move(entry));
  return {};
}

// The pieces of a tensor in one file follow each other without gaps, and are all that the file has of it.
Status CheckpointReader::check_pieces(const std::string& tensor, const std::vector<ManifestPiece>& pieces) const {
  std::map<std::string_view, size_t> counts;  // by file, so far
  for (const ManifestPiece& piece : pieces) {
    size_t& count = counts[piece.file];
    if (piece.begin != count) {
      return Status(Code::kDataLoss, fmt::format("{}: tensor {} has a run at element {}, the manifest says {}",
                                                 files_.at(piece.file).file.path(), tensor, count, piece.begin));
    }
    count += piece.count;
  }
  for (const auto& [name, expected] : counts) {
    const OpenFile& file = files_.at(std::string(name));
    const auto stored = file.counts.find(tensor);
    if (stored == file.counts.end()) {
      return Status(Code::kDataLoss, fmt::format("{}: tensor {} is missing", file.file.path(), tensor));
    }
    if (stored->second == expected) continue;
    return Status(Code::kDataLoss, fmt::format("{}: tensor {} has {} elements, the manifest says {}", file.file.path(),
                                               tensor, stored->second, expected));
  }
  return {};
}

std::vector<std::string> CheckpointReader::files() const {
  std::vector<std::string> names;
  for (const auto& [name, unused] : files_) names.push_back(name);
  return names;
}

uint64_t CheckpointReader::total_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [unused, file] : files_) bytes += file.file.size_bytes();
  return bytes;
}

Status CheckpointReader::read(const std::string& tensor, size_t offset, std::span<float> values) const {
  const std::vector<ManifestPiece>& pieces = manifest_.tensors.at(tensor).pieces;
  // The last piece that begins at or before `offset`.
  auto piece = std::upper_bound(pieces.begin(), pieces.end(), offset,
                                [](size_t element, const ManifestPiece& p) { return element < p.offset; });
  if (piece != pieces.begin()) --piece;
  for (; !values.empty() && piece != pieces.end(); ++piece) {
    const size_t skipped = offset - piece->offset;
    const size_t count = std::min(values.size(), piece->count - skipped);
    const OpenFile& file = files_.at(piece->file);
    const uint64_t begin = file.data_offsets.at(tensor) + (piece->begin + skipped) * sizeof(float);
    SHARDCOMM_TRY(file.file.read_at(begin, std::as_writable_bytes(values.first(count))));
    values = values.subspan(count);
    offset += count;
  }
  if (values.empty()) return {};
  return Status(Code::kDataLoss, fmt::format("{}: tensor {} has no element {}", directory_, tensor, offset));
}

Status CheckpointReader::verify(size_t share, size_t shares) const {
  size_t number = 0;
  for (const auto& [name, tensor] : manifest_.tensors) {
    for (const ManifestPiece& piece : tensor.pieces) {
      if (number++ % shares == share) SHARDCOMM_TRY(verify_piece(name, piece));
    }
  }
  return {};
}

Status CheckpointReader::verify_tensor(const std::string& tensor) const {
  for (const ManifestPiece& piece : manifest_.tensors.at(tensor).pieces) SHARDCOMM_TRY(verify_piece(tensor, piece));
  return {};
}

Status CheckpointReader::verify_piece(const std::string& tensor, const ManifestPiece& piece) const {
  const OpenFile& file = files_.at(piece.file);
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(), XXH3_freeState);
  if (state == nullptr) return Status(Code::kOutOfMemory, "no memory for a checksum");
  XXH3_64bits_reset(state.get());
  std::vector<std::byte> bytes;
  uint64_t begin = file.data_offsets.at(tensor) + piece.begin * sizeof(float);
  for (size_t left = piece.count * sizeof(float); left > 0; left -= bytes.size(), begin += bytes.size()) {
    bytes.resize(std::min(left, kPieceBytes));
    SHARDCOMM_TRY(file.file.read_at(begin, bytes));
    XXH3_64bits_update(state.get(), bytes.data(), bytes.size());
  }
  if (XXH3_64bits_digest(state.get()) == piece.checksum) return {};
  return Status(Code::kDataLoss, fmt::format("{}: tensor {} does not have its checksum", file.file.path(), tensor));
}

}  // namespace shardcomm::zero
