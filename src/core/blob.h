// The blobs that ranks exchange while they meet and agree: a number of fields in the form of bootstrap's lists, and
// statuses as two of them.
#pragma once
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shardcomm/status.h"

namespace shardcomm {

std::string pack(std::initializer_list<std::string_view> fields);
// kFailedPrecondition where the blob has another number of fields.
Result<std::vector<std::string>> unpack(std::string_view blob, size_t fields);

std::string pack_status(const Status& status);
// The first failure among blobs that are pack_status(), by rank: "rank 2: ...".
Status first_failure(std::span<const std::string> blobs);

}  // namespace shardcomm
