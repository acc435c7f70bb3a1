// Decides which buckets of a unit one collective moves, and names it. Pure functions.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "zero/unit.h"

namespace shardcomm::zero {

// The unit's buckets have their places; bucket_bytes is that of ZeroOptions.
std::vector<Transfer> divide_values(const UnitLayout& unit, size_t bucket_bytes);
std::vector<Transfer> divide_gradients(const UnitLayout& unit, size_t bucket_bytes);

// "h.3", or "h.3 2/4" where the unit has several.
std::string transfer_name(const UnitLayout& unit, const std::vector<Transfer>& transfers, size_t index);
// "gather h.3 2/4". A name that is too long keeps its end, which tells blocks apart.
std::string collective_label(std::string_view verb, std::string_view name);
// Whether a text quotes the label of one of the unit's collectives. Not where the label was too long.
bool names_operation_of(std::string_view text, std::string_view unit);

}  // namespace shardcomm::zero
