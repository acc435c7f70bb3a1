// The machine's figures as text: one JSON object, one key a member.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "planner/planner.h"

namespace shardcomm {
namespace {

template <class Value>
struct Figure {
  const char* key;
  Value MachineModel::*value;
};
constexpr Figure<double> kFigures[] = {
    {"signal_us", &MachineModel::signal_us},     {"switch_us", &MachineModel::switch_us},
    {"lookup_us", &MachineModel::lookup_us},     {"cached_gbs", &MachineModel::cached_gbs},
    {"memory_gbs", &MachineModel::memory_gbs},   {"attach_us", &MachineModel::attach_us},
    {"cache_bytes", &MachineModel::cache_bytes},
};
constexpr Figure<std::optional<double>> kOptionalFigures[] = {
    {"attach_gbs", &MachineModel::attach_gbs},
    {"staged_gbs", &MachineModel::staged_gbs},
};

Status invalid(std::string text) { return Status(Code::kInvalidArgument, "machine model: " + text); }

bool is_known(const std::string& key) {
  const auto has_key = [&key](const auto& figure) { return key == figure.key; };
  return std::any_of(std::begin(kFigures), std::end(kFigures), has_key) ||
         std::any_of(std::begin(kOptionalFigures), std::end(kOptionalFigures), has_key);
}

}  // namespace

std::string MachineModel::to_json() const {
  nlohmann::ordered_json json;
  for (const auto& figure : kFigures) json[figure.key] = this->*figure.value;
  for (const auto& figure : kOptionalFigures) {
    if (this->*figure.value) json[figure.key] = *(this->*figure.value);
  }
  return json.dump();
}

Result<MachineModel> MachineModel::parse(std::string_view text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return invalid("no JSON object");
  MachineModel model;
  for (const auto& [key, value] : json.items()) {
    if (!is_known(key)) return invalid(fmt::format("unknown key '{}'", key));
    if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() <= 0)
      return invalid(fmt::format("'{}' is {}, no positive number", key, value.dump()));
  }
  for (const auto& figure : kFigures) {
    if (!json.contains(figure.key)) return invalid(fmt::format("no '{}'", figure.key));
    model.*figure.value = json[figure.key].get<double>();
  }
  for (const auto& figure : kOptionalFigures) {
    if (json.contains(figure.key)) model.*figure.value = json[figure.key].get<double>();
  }
  return model;
}

}  // namespace shardcomm
