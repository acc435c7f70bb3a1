#include "tools/trainer/model.h"

#include <algorithm>
#include <exception>

#include "tools/trainer/gpt2.h"

namespace shardcomm::trainer {

static constexpr size_t kMaxSequences = 1 << 20;

size_t ParameterInfo::count() const {
  size_t n = 1;
  for (const size_t extent : shape) n *= extent;
  return n;
}

size_t UnitInfo::count() const {
  size_t n = 0;
  for (const ParameterInfo& parameter : parameters) n += parameter.count();
  return n;
}

std::string full_name(const UnitInfo& unit, const ParameterInfo& parameter) { return unit.name + "." + parameter.name; }

std::vector<UnitSpec> zero_units(std::span<const UnitInfo> units, DType dtype) {
  std::vector<UnitSpec> specs;
  for (const UnitInfo& unit : units) {
    UnitSpec& spec = specs.emplace_back(UnitSpec{unit.name, {}});
    for (const ParameterInfo& parameter : unit.parameters) {
      spec.parameters.push_back({.name = parameter.name,
                                 .shape = parameter.shape,
                                 .dtype = dtype,
                                 .decay_factor = parameter.decay ? 1.0f : 0.0f,
                                 .tied_to = parameter.tied_to});
    }
  }
  return specs;
}

Result<std::unique_ptr<Model>> make_model(const ModelConfig& config, const ModelOptions& options) {
  SHARDCOMM_TRY(validate(config).context("checking the model"));
  if (options.sequences == 0 || options.sequences > kMaxSequences) {
    return Status(Code::kInvalidArgument, "a batch of " + std::to_string(options.sequences) +
                                              " sequences; it must be between 1 and " + std::to_string(kMaxSequences));
  }
  try {
    return std::unique_ptr<Model>(std::make_unique<Gpt2>(config, options));
  } catch (const std::exception&) {  // std::bad_alloc, or std::length_error when the size itself is absurd
    const size_t bytes = Gpt2Activations{}.lay_out(config, options, nullptr) * sizeof(float);  // saturated
    return Status(Code::kOutOfMemory, "the activations of " + std::to_string(options.sequences) + " sequences take " +
                                          std::to_string(bytes) + " bytes");
  }
}

Status check_parameters(const UnitInfo& unit, std::span<const Parameter> parameters, bool backward) {
  const auto wrong = [&](const std::string& what) {
    return Status(Code::kInvalidArgument, "unit " + unit.name + ": " + what);
  };
  if (parameters.size() != unit.parameters.size()) {
    return wrong(std::to_string(parameters.size()) + " parameters, not " + std::to_string(unit.parameters.size()));
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    const ParameterInfo& info = unit.parameters[i];
    if (parameters[i].count != info.count()) {
      return wrong(info.name + " has " + std::to_string(parameters[i].count) + " elements, not " +
                   std::to_string(info.count()));
    }
    if (parameters[i].value == nullptr) return wrong(info.name + " has no value");
    if (backward && parameters[i].gradient == nullptr) return wrong(info.name + " has no gradient");
  }
  return {};
}

Status check_batch(const ModelConfig& config, const ModelOptions& options, const Batch& batch) {
  const auto wrong = [](const std::string& what) { return Status(Code::kInvalidArgument, "batch: " + what); };
  if (batch.sequences > options.sequences) {
    return wrong(std::to_string(batch.sequences) + " sequences, at most " + std::to_string(options.sequences));
  }
  if (batch.sequences > 0 && (batch.length == 0 || batch.length > config.seq)) {
    return wrong("sequences of " + std::to_string(batch.length) + " tokens, at most " + std::to_string(config.seq));
  }
  const size_t rows = batch.sequences * batch.length;
  if (batch.tokens.size() != rows) return wrong("the number of tokens is not sequences x length");
  if (!batch.targets.empty() && batch.targets.size() != rows) return wrong("tokens and targets differ in number");
  const auto vocab = static_cast<int32_t>(config.vocab);
  const auto outside = [&](int32_t token) { return token < 0 || token >= vocab; };
  if (const auto bad = std::find_if(batch.tokens.begin(), batch.tokens.end(), outside); bad != batch.tokens.end()) {
    return wrong("token " + std::to_string(*bad) + " is not in the vocabulary of " + std::to_string(vocab));
  }
  const auto above = [&](int32_t target) { return target >= vocab; };
  if (const auto bad = std::find_if(batch.targets.begin(), batch.targets.end(), above); bad != batch.targets.end()) {
    return wrong("target " + std::to_string(*bad) + " is not in the vocabulary of " + std::to_string(vocab));
  }
  return {};
}

}  // namespace shardcomm::trainer
