#include "zero/checkpoint/manifest.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>

#include "zero/checkpoint/json_text.h"
#include "zero/checkpoint/safetensors.h"
#include "zero/checkpoint/states.h"

namespace shardcomm::zero {
namespace {

using Json = nlohmann::json;

constexpr int kVersion = 3;         // the newest that is read
constexpr int kVersionOfRuns = 2;   // without Manifest::states
constexpr int kVersionOfWhole = 1;  // without ManifestPiece::begin, too
constexpr std::string_view kFormat = "shardcomm checkpoint";
constexpr std::string_view kAdamW = "adamw", kNoOptimizer = "none";

std::string hex(uint64_t value) { return fmt::format("{:016x}", value); }

std::optional<uint64_t> parse_hex(const Json& value) {
  if (!value.is_string() || value.get_ref<const std::string&>().size() != 16) return std::nullopt;
  uint64_t result = 0;
  for (const char c : value.get_ref<const std::string&>()) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return std::nullopt;
    result = result << 4 | static_cast<uint64_t>(digit);
  }
  return result;
}

// Of everything but the checksum itself, in the one form that dump() gives.
std::string checksum_of(const Json& json) {
  const std::string text = json.dump();
  return hex(XXH3_64bits(text.data(), text.size()));
}

Json json_of(const ManifestFile& file) {
  return {{"head_bytes", file.head_bytes}, {"head_checksum", hex(file.head_checksum)}};
}

Json json_of(const ManifestPiece& piece) {
  Json json = {
      {"file", piece.file}, {"offset", piece.offset}, {"count", piece.count}, {"checksum", hex(piece.checksum)}};
  if (piece.begin != 0) json["begin"] = piece.begin;
  return json;
}

Json json_of(const std::vector<ManifestPiece>& pieces) {
  Json json = Json::array();
  for (const ManifestPiece& piece : pieces) json.push_back(json_of(piece));
  return json;
}

// Throws what(): the caller knows the file.
struct Malformed {
  std::string what;
};

template <class T>
T count_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_unsigned() ||
      found->get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<T>::max())) {
    throw Malformed{fmt::format("{} is not a count", key)};
  }
  return found->get<T>();
}

const Json& object_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_object()) throw Malformed{fmt::format("{} is not an object", key)};
  return *found;
}

std::string text_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) throw Malformed{fmt::format("{} is not a text", key)};
  return found->get<std::string>();
}

// A file of the checkpoint's own directory, whatever the manifest says.
bool is_plain_name(std::string_view name) {
  return !name.empty() && name.front() != '.' && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

uint64_t checksum_at(const Json& object, const char* key, const std::string& of) {
  const auto found = object.find(key);
  const auto checksum = found == object.end() ? std::nullopt : parse_hex(*found);
  if (!checksum) throw Malformed{fmt::format("{} of {} is no checksum", key, of)};
  return *checksum;
}

ManifestFile file_from(const Json& json, const std::string& name) {
  if (!json.is_object()) throw Malformed{fmt::format("file {} is not an object", name)};
  return {count_at<uint64_t>(json, "head_bytes"), checksum_at(json, "head_checksum", name)};
}

ManifestPiece piece_from(const Json& json, const std::string& tensor) {
  if (!json.is_object()) throw Malformed{fmt::format("a piece of {} is not an object", tensor)};
  ManifestPiece piece{.file = text_at(json, "file"),
                      .offset = count_at<size_t>(json, "offset"),
                      .count = count_at<size_t>(json, "count"),
                      .checksum = checksum_at(json, "checksum", tensor),
                      .begin = json.contains("begin") ? count_at<size_t>(json, "begin") : 0};
  if (!is_plain_name(piece.file)) throw Malformed{fmt::format("{} is said to be in the file {}", tensor, piece.file)};
  return piece;
}

// Every element in exactly one piece.
void check_cover(const std::string& name, ManifestTensor& tensor) {
  size_t count = 0, next = 0;
  if (!count_elements(tensor.shape, count)) throw Malformed{fmt::format("{} has too many elements", name)};
  std::sort(tensor.pieces.begin(), tensor.pieces.end(),
            [](const auto& a, const auto& b) { return a.offset < b.offset; });
  for (const ManifestPiece& piece : tensor.pieces) {
    if (piece.offset != next || piece.count == 0 || piece.count > count - next) {
      throw Malformed{fmt::format("{} has elements [{}, {}) {}", name, std::min(next, piece.offset),
                                  std::max(next, piece.offset), piece.offset > next ? "in no file" : "in two files")};
    }
    next += piece.count;
  }
  if (next != count) throw Malformed{fmt::format("{} has elements [{}, {}) in no file", name, next, count)};
}

ManifestTensor tensor_from(const std::string& name, const Json& json) {
  if (!json.is_object()) throw Malformed{fmt::format("{} is not an object", name)};
  if (text_at(json, "dtype") != "F32") throw Malformed{fmt::format("{} is not of dtype F32", name)};
  ManifestTensor tensor;
  const auto shape = json.find("shape"), pieces = json.find("pieces");
  if (shape == json.end() || !shape->is_array()) throw Malformed{fmt::format("{} has no shape", name)};
  for (const Json& extent : *shape) {
    if (!extent.is_number_unsigned()) throw Malformed{fmt::format("{} has an extent that is no count", name)};
    tensor.shape.push_back(extent.get<size_t>());
  }
  if (pieces == json.end() || !pieces->is_array()) throw Malformed{fmt::format("{} has no pieces", name)};
  for (const Json& piece : *pieces) tensor.pieces.push_back(piece_from(piece, name));
  check_cover(name, tensor);
  return tensor;
}

// The states of a manifest that does not name any.
std::vector<std::string> usual_states(bool adamw) {
  return adamw ? std::vector<std::string>{"m", "v"} : std::vector<std::string>();
}

std::vector<std::string> states_from(const Json& json, bool adamw) {
  const auto found = json.find("states");
  if (found == json.end()) return usual_states(adamw);
  if (!found->is_array()) throw Malformed{"states is not a list"};
  std::vector<std::string> states;
  for (const Json& state : *found) {
    if (!state.is_string() || !is_state_name(state.get_ref<const std::string&>())) {
      throw Malformed{"states has an entry that is not the name of one"};
    }
    states.push_back(state.get<std::string>());
  }
  if (std::ranges::adjacent_find(states, std::greater_equal()) != states.end()) {
    throw Malformed{"states is not sorted, or has one twice"};
  }
  return states;
}

Manifest from_json(Json json) {
  if (!json.is_object()) throw Malformed{"it is not a JSON object"};
  if (!json.contains("format") || json["format"] != kFormat) throw Malformed{"it is no shardcomm checkpoint"};
  if (const int version = count_at<int>(json, "version"); version < 1 || version > kVersion) {
    throw Malformed{fmt::format("it has version {}; this library reads versions 1 to {}", version, kVersion)};
  }
  const std::string checksum = text_at(json, "checksum");
  json.erase("checksum");
  if (checksum != checksum_of(json)) throw Malformed{"its checksum is not that of its contents"};
  Manifest manifest;
  manifest.step = count_at<uint64_t>(json, "step");
  manifest.world_size = count_at<int>(json, "world_size");
  manifest.generation = count_at<uint64_t>(json, "generation");
  const Json& optimizer = object_at(json, "optimizer");
  manifest.adamw = text_at(optimizer, "name") != kNoOptimizer;
  manifest.optimizer_steps = count_at<uint64_t>(optimizer, "steps");
  manifest.states = states_from(json, manifest.adamw);
  manifest.trainer_state = object_at(json, "trainer_state").dump();
  for (const auto& [name, file] : object_at(json, "files").items()) manifest.files[name] = file_from(file, name);
  for (const auto& [name, tensor] : object_at(json, "tensors").items()) {
    const ManifestTensor& read = manifest.tensors[name] = tensor_from(name, tensor);
    for (const ManifestPiece& piece : read.pieces) {
      if (!manifest.files.contains(piece.file))
        throw Malformed{fmt::format("{} is in {}, which is not listed", name, piece.file)};
    }
  }
  for (const auto& [name, owner] : object_at(json, "tied").items()) {
    if (!owner.is_string() || !manifest.tensors.contains(owner.get<std::string>())) {
      throw Malformed{fmt::format("{} is tied to what is not there", name)};
    }
    manifest.tied[name] = owner.get<std::string>();
  }
  return manifest;
}

// The lowest that can say it.
int version_of(const Manifest& manifest) {
  if (manifest.states != usual_states(manifest.adamw)) return kVersion;
  const auto is_whole = [](const ManifestPiece& piece) { return piece.begin == 0; };
  const bool whole = std::ranges::all_of(
      manifest.tensors, [&](const auto& named) { return std::ranges::all_of(named.second.pieces, is_whole); });
  return whole ? kVersionOfWhole : kVersionOfRuns;
}

}  // namespace

std::string report_to_text(const ShardReport& report) {
  Json json = {{"file", report.file}, {"head", json_of(report.head)}, {"pieces", Json::object()}};
  for (const auto& [name, pieces] : report.pieces) json["pieces"][name] = json_of(pieces);
  return json.dump();
}

Status add_report(std::string_view text, Manifest& manifest) {
  try {
    const Json json = parse_json_text(text);
    if (!json.is_object()) throw Malformed{"not an object"};
    const std::string file = text_at(json, "file");
    if (!file.empty()) manifest.files[file] = file_from(object_at(json, "head"), file);
    for (const auto& [name, pieces] : object_at(json, "pieces").items()) {
      for (const Json& piece : pieces) manifest.tensors.at(name).pieces.push_back(piece_from(piece, name));
    }
  } catch (const Malformed& malformed) {
    return Status(Code::kInternal, fmt::format("a rank's report of its shard: {}", malformed.what));
  } catch (const std::exception& error) {
    return Status(Code::kInternal, fmt::format("a rank's report of its shard: {}", error.what()));
  }
  return {};
}

std::string state_of(const Manifest& manifest, const std::string& tensor) {
  const size_t slash = tensor.rfind('/');
  if (slash == std::string::npos || !manifest.tensors.contains(tensor.substr(0, slash))) return {};
  const std::string state = tensor.substr(slash + 1);
  return std::ranges::binary_search(manifest.states, state) ? state : std::string();
}

Result<std::string> manifest_to_text(const Manifest& manifest) {
  Json json = {{"format", kFormat},
               {"version", version_of(manifest)},
               {"step", manifest.step},
               {"world_size", manifest.world_size},
               {"generation", manifest.generation},
               {"optimizer", {{"name", manifest.adamw ? kAdamW : kNoOptimizer}, {"steps", manifest.optimizer_steps}}},
               {"files", Json::object()},
               {"tensors", Json::object()},
               {"tied", manifest.tied}};
  if (manifest.tied.empty()) json["tied"] = Json::object();
  if (manifest.states != usual_states(manifest.adamw)) json["states"] = manifest.states;
  json["trainer_state"] = parse_json_text(manifest.trainer_state);
  for (const auto& [name, file] : manifest.files) json["files"][name] = json_of(file);
  for (const auto& [name, tensor] : manifest.tensors) {
    json["tensors"][name] = {{"dtype", "F32"}, {"shape", tensor.shape}, {"pieces", json_of(tensor.pieces)}};
  }
  try {
    json["checksum"] = checksum_of(json);
    return json.dump(1);
  } catch (const Json::exception& error) {
    return Status(Code::kInvalidArgument,
                  fmt::format("a name or the trainer state cannot be stored: {}", error.what()));
  }
}

Result<Manifest> parse_manifest(std::string_view text, const std::string& path) {
  try {
    return from_json(parse_json_text(text));
  } catch (const Malformed& malformed) {
    return Status(Code::kDataLoss, fmt::format("{}: {}", path, malformed.what));
  } catch (const std::exception& error) {
    return Status(Code::kDataLoss, fmt::format("{}: {}", path, error.what()));
  }
}

Result<std::string> compact_object(std::string_view text) {
  if (text.empty()) return std::string("{}");
  const Json json = parse_json_text(text);
  if (!json.is_object()) return Status(Code::kInvalidArgument, "the trainer state is not a JSON object");
  return json.dump();
}

}  // namespace shardcomm::zero
