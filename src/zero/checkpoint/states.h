// The states that a checkpoint keeps beside parameters: which a call was given, and what they are called in files.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "shardcomm/checkpoint.h"

namespace shardcomm::zero {

// "h.0.w/momentum"
std::string state_tensor(std::string_view parameter, std::string_view state);
// Letters, digits, '_', '-' and '.'; 64 at most.
bool is_state_name(std::string_view name);

// Those of AdamW ("m" and "v"), if there is one, and the further ones, sorted by name. kInvalidArgument for bad names,
// names that are taken by another state or by a parameter, and arrays of another size than the engine's.
Result<std::vector<NamedState>> all_states(const ZeroEngine& engine, const AdamW* optimizer,
                                           const std::vector<NamedState>& further);

std::vector<std::string> names_of(const std::vector<NamedState>& states);
std::string list_text(const std::vector<std::string>& names);  // "[m, v]"

// Collective. kFailedPrecondition, with two ranks' lists, where they differ.
Status agree_on_states(Communicator& comm, const AdamW* optimizer, const std::vector<NamedState>& states);

}  // namespace shardcomm::zero
