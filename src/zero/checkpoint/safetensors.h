// The safetensors format (huggingface.co/docs/safetensors): 8 bytes little-endian length of a JSON header, the header,
// then the data of all tensors without gaps. Pure functions on bytes; what is read is outside input and is distrusted.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "shardcomm/status.h"

namespace shardcomm::zero {

struct StoredTensor {
  std::string name;
  std::string dtype;  // as the format spells it: "F32"
  std::vector<size_t> shape;
  uint64_t begin = 0;  // bytes from the start of the data
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<StoredTensor> tensors;  // in the order of their data
  std::map<std::string, std::string> metadata;
  uint64_t data_begin = 0;  // bytes from the start of the file; a multiple of 8 in what we write
};

// Elements of a shape; nothing where they would not fit an address space.
bool count_elements(const std::vector<size_t>& shape, size_t& count);

// The bytes before the data. begin and end of the tensors are set here, in the order given.
// kInvalidArgument for names that are not UTF-8.
Result<std::string> build_safetensors_header(std::vector<StoredTensor>& tensors,
                                             const std::map<std::string, std::string>& metadata);

// `head` is the file's beginning: 8 + header length bytes of it at least, as safetensors_head_bytes says.
// kDataLoss, naming the file, for everything that is not as the format says.
Result<uint64_t> safetensors_head_bytes(std::string_view first_eight, uint64_t file_bytes, std::string_view file);
Result<SafetensorsHeader> parse_safetensors_header(std::string_view head, uint64_t file_bytes, std::string_view file);

}  // namespace shardcomm::zero
