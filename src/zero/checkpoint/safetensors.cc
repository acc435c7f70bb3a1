#include "zero/checkpoint/safetensors.h"

#include <fmt/format.h>

#include <algorithm>

#include "zero/checkpoint/json_text.h"

namespace shardcomm::zero {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the reference implementation
constexpr size_t kMaxElements = size_t{1} << 56;
constexpr size_t kMaxDimensions = 64;

Status bad(std::string_view file, std::string_view why) {
  return Status(Code::kDataLoss, fmt::format("{}: {}", file, why));
}

// 0: not one of the format's types.
uint64_t bytes_of_dtype(std::string_view dtype) {
  static constexpr std::pair<std::string_view, uint64_t> kSizes[] = {
      {"F64", 8}, {"I64", 8}, {"U64", 8}, {"F32", 4}, {"I32", 4},  {"U32", 4},     {"F16", 2},    {"BF16", 2},
      {"I16", 2}, {"U16", 2}, {"I8", 1},  {"U8", 1},  {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
  for (const auto& [name, bytes] : kSizes) {
    if (name == dtype) return bytes;
  }
  return 0;
}

Status parse_tensor(const Json& value, std::string_view file, StoredTensor& tensor) {
  const auto bad_tensor = [&](std::string_view why) {
    return bad(file, fmt::format("tensor {} {}", tensor.name, why));
  };
  if (!value.is_object()) return bad_tensor("is not described by an object");
  const auto dtype = value.find("dtype"), shape = value.find("shape"), offsets = value.find("data_offsets");
  if (dtype == value.end() || !dtype->is_string()) return bad_tensor("has no dtype");
  tensor.dtype = dtype->get<std::string>();
  const uint64_t element_bytes = bytes_of_dtype(tensor.dtype);
  if (element_bytes == 0) return bad_tensor(fmt::format("has the unknown dtype {}", tensor.dtype));
  if (shape == value.end() || !shape->is_array() || shape->size() > kMaxDimensions) return bad_tensor("has no shape");
  for (const Json& extent : *shape) {
    if (!extent.is_number_unsigned()) return bad_tensor("has an extent that is no count");
    tensor.shape.push_back(extent.get<size_t>());
  }
  size_t count = 0;
  if (!count_elements(tensor.shape, count)) return bad_tensor("has too many elements");
  if (offsets == value.end() || !offsets->is_array() || offsets->size() != 2 || !(*offsets)[0].is_number_unsigned() ||
      !(*offsets)[1].is_number_unsigned()) {
    return bad_tensor("has no data_offsets");
  }
  tensor.begin = (*offsets)[0].get<uint64_t>();
  tensor.end = (*offsets)[1].get<uint64_t>();
  if (tensor.begin > tensor.end || tensor.end - tensor.begin != count * element_bytes) {
    return bad_tensor(fmt::format("has data_offsets [{}, {}) that do not hold its shape", tensor.begin, tensor.end));
  }
  return {};
}

// Data without gaps and without overlaps, up to the file's end.
Status check_extents(const SafetensorsHeader& header, uint64_t file_bytes, std::string_view file) {
  uint64_t next = 0;
  for (const StoredTensor& tensor : header.tensors) {
    if (tensor.begin != next) {
      return bad(file, fmt::format("tensor {} begins at byte {} of the data, not {}", tensor.name, tensor.begin, next));
    }
    next = tensor.end;
  }
  const uint64_t available = file_bytes - header.data_begin;
  if (next == available) return {};
  return bad(file, fmt::format("its tensors need {} bytes of data, it has {}", next, available));
}

Result<SafetensorsHeader> parse_json(std::string_view text, uint64_t file_bytes, std::string_view file) {
  const Json json = parse_json_text(text);
  if (!json.is_object()) return bad(file, "its header is not a JSON object");
  SafetensorsHeader header;
  header.data_begin = 8 + text.size();
  for (const auto& [name, value] : json.items()) {
    if (name != "__metadata__") {
      StoredTensor& tensor = header.tensors.emplace_back();
      tensor.name = name;
      SHARDCOMM_TRY(parse_tensor(value, file, tensor));
      continue;
    }
    if (!value.is_object()) return bad(file, "its metadata is not an object");
    for (const auto& [key, entry] : value.items()) {
      if (!entry.is_string()) return bad(file, fmt::format("metadata {} is not a string", key));
      header.metadata[key] = entry.get<std::string>();
    }
  }
  std::stable_sort(header.tensors.begin(), header.tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  SHARDCOMM_TRY(check_extents(header, file_bytes, file));
  return header;
}

}  // namespace

bool count_elements(const std::vector<size_t>& shape, size_t& count) {
  count = 1;
  for (const size_t extent : shape) {
    if (extent != 0 && count > kMaxElements / extent) return false;
    count *= extent;
  }
  return true;
}

Result<std::string> build_safetensors_header(std::vector<StoredTensor>& tensors,
                                             const std::map<std::string, std::string>& metadata) {
  Json json = Json::object();
  if (!metadata.empty()) json["__metadata__"] = metadata;
  uint64_t next = 0;
  for (StoredTensor& tensor : tensors) {
    size_t count = 0;
    if (!count_elements(tensor.shape, count))
      return Status(Code::kInvalidArgument, fmt::format("tensor {} is too large", tensor.name));
    tensor.begin = next;
    next += count * bytes_of_dtype(tensor.dtype);
    tensor.end = next;
    json[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {tensor.begin, tensor.end}}};
  }
  std::string text;
  try {
    text = json.dump();
  } catch (const Json::exception& error) {
    return Status(Code::kInvalidArgument, fmt::format("a name cannot be stored: {}", error.what()));
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string head(8, '\0');
  for (size_t i = 0; i < 8; ++i) head[i] = static_cast<char>(uint64_t{text.size()} >> (8 * i));
  return head + text;
}

Result<uint64_t> safetensors_head_bytes(std::string_view first_eight, uint64_t file_bytes, std::string_view file) {
  if (first_eight.size() < 8) return bad(file, "it is too short for a safetensors file");
  uint64_t length = 0;
  for (size_t i = 0; i < 8; ++i) length |= uint64_t{static_cast<uint8_t>(first_eight[i])} << (8 * i);
  if (length > kMaxHeaderBytes || length > file_bytes - 8) {
    return bad(file, fmt::format("its header claims {} bytes of a file of {}", length, file_bytes));
  }
  return 8 + length;
}

Result<SafetensorsHeader> parse_safetensors_header(std::string_view head, uint64_t file_bytes, std::string_view file) {
  SHARDCOMM_TRY_ASSIGN(const uint64_t head_bytes, safetensors_head_bytes(head.substr(0, 8), file_bytes, file));
  if (head.size() < head_bytes) return bad(file, "its header is cut off");
  try {
    return parse_json(head.substr(8, static_cast<size_t>(head_bytes) - 8), file_bytes, file);
  } catch (const std::exception& error) {
    return bad(file, fmt::format("its header cannot be read: {}", error.what()));
  }
}

}  // namespace shardcomm::zero
