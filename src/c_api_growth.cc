// What growing structs refuse, in words.
#include "c_api_growth.h"

namespace shardcomm::c_api::growth {
namespace {

std::string advice(const char* hint) {
  if (*hint == '\0') return "set struct_size to its sizeof";
  return "initialize it with " + std::string(hint) + " (which sets struct_size) before its members";
}

}  // namespace

Status check_bytes(size_t bytes, size_t first_bytes, size_t align, const char* hint, const char* what) {
  if (bytes >= first_bytes && bytes <= kLargestStructBytes && bytes % align == 0) return {};
  return Status(Code::kInvalidArgument, std::string(what) + " has a struct_size of " + std::to_string(bytes) +
                                            ", which no version has (the first has " + std::to_string(first_bytes) +
                                            "): " + advice(hint));
}

Status check_tail(const void* given, size_t known, size_t bytes, const char* what) {
  const auto* at = static_cast<const unsigned char*>(given);
  const auto* const set = std::find_if(at + known, at + bytes, [](unsigned char byte) { return byte != 0; });
  if (set == at + bytes) return {};
  return Status(Code::kUnsupported, std::string(what) + " has " + std::to_string(bytes) +
                                        " bytes, of which this library knows " + std::to_string(known) + ", and byte " +
                                        std::to_string(set - at) +
                                        " is not zero: a member is set that only a later library has");
}

}  // namespace shardcomm::c_api::growth
