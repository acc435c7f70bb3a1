// manifest.json: what a checkpoint holds and where, with checksums. Written last; a directory without it does not
// count.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "shardcomm/status.h"

namespace shardcomm::zero {

inline constexpr std::string_view kManifestName = "manifest.json";

// A run of elements of one tensor. A file holds its runs of a tensor one behind the other, in the order of their
// offsets, under the tensor's name. Version 1 had one run a file; version 2 added `begin`. Version 3 added `states`:
// before, they were those of AdamW, or none where it had not been there.
struct ManifestPiece {
  std::string file;   // in the checkpoint's directory
  size_t offset = 0;  // first element, in the flattened tensor
  size_t count = 0;
  uint64_t checksum = 0;  // XXH3 of the bytes
  size_t begin = 0;       // first element, in what the file holds of the tensor
};
struct ManifestTensor {
  std::vector<size_t> shape;
  std::vector<ManifestPiece> pieces;  // by offset; together they cover the tensor once
};
struct ManifestFile {
  uint64_t head_bytes = 0;     // before the data: the safetensors header
  uint64_t head_checksum = 0;  // XXH3 of them
};
struct Manifest {
  uint64_t step = 0;
  int world_size = 0;
  bool adamw = true;  // saved with AdamW, whose step count this is:
  uint64_t optimizer_steps = 0;
  std::vector<std::string> states = {"m", "v"};   // names, sorted
  uint64_t generation = 0;                        // of the files, when a step is saved again
  std::string trainer_state = "{}";               // a JSON object
  std::map<std::string, ManifestTensor> tensors;  // all f32; "unit.name", and its states "unit.name/m"
  std::map<std::string, std::string> tied;        // "unit.name" -> the tensor that holds it
  std::map<std::string, ManifestFile> files;      // all that pieces name
};

// What one rank has written, as text for the rank that writes the manifest.
struct ShardReport {
  std::string file;  // "": the rank had nothing to write
  ManifestFile head;
  std::map<std::string, std::vector<ManifestPiece>> pieces;  // by tensor
};
std::string report_to_text(const ShardReport& report);
Status add_report(std::string_view text, Manifest& manifest);

// The state that a tensor is, "m" of "h.0.w/m"; "" for a parameter.
std::string state_of(const Manifest& manifest, const std::string& tensor);

// In the lowest version that can say it. kInvalidArgument when a name or the trainer state is not UTF-8 JSON.
Result<std::string> manifest_to_text(const Manifest& manifest);
// Everything is checked that can be without the files: kDataLoss names `path`.
Result<Manifest> parse_manifest(std::string_view text, const std::string& path);

// `text` as a compact JSON object ("" counts as one that is empty); else kInvalidArgument.
Result<std::string> compact_object(std::string_view text);

}  // namespace shardcomm::zero
