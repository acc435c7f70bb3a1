// The machine's figures as text: one JSON object, one key a member.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "planner/planner.h"

namespace shardcomm {
namespace {

struct Figure {
  const char* key;
  double MachineModel::*value;
};
constexpr Figure kFigures[] = {
    {"signal_us", &MachineModel::signal_us},     {"switch_us", &MachineModel::switch_us},
    {"lookup_us", &MachineModel::lookup_us},     {"cached_gbs", &MachineModel::cached_gbs},
    {"memory_gbs", &MachineModel::memory_gbs},   {"attach_us", &MachineModel::attach_us},
    {"attach_gbs", &MachineModel::attach_gbs},   {"staged_gbs", &MachineModel::staged_gbs},
    {"cache_bytes", &MachineModel::cache_bytes},
};

Status invalid(std::string text) { return Status(Code::kInvalidArgument, "machine model: " + text); }

}  // namespace

std::string MachineModel::to_json() const {
  nlohmann::ordered_json json;
  for (const Figure& figure : kFigures) json[figure.key] = this->*figure.value;
  return json.dump();
}

Result<MachineModel> MachineModel::parse(std::string_view text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return invalid("no JSON object");
  MachineModel model;
  for (const Figure& figure : kFigures) {
    const auto found = json.find(figure.key);
    if (found == json.end()) return invalid(fmt::format("no '{}'", figure.key));
    if (!found->is_number() || !std::isfinite(found->get<double>()) || found->get<double>() <= 0)
      return invalid(fmt::format("'{}' is {}, no positive number", figure.key, found->dump()));
    model.*figure.value = found->get<double>();
  }
  for (const auto& [key, unused] : json.items()) {
    const auto known = [&key = key](const Figure& figure) { return key == figure.key; };
    if (std::none_of(std::begin(kFigures), std::end(kFigures), known))
      return invalid(fmt::format("unknown key '{}'", key));
  }
  return model;
}

}  // namespace shardcomm
