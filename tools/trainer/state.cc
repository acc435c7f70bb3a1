#include "tools/trainer/state.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace shardcomm::trainer {

std::string state_text(const RunState& state) {
  const ModelConfig& model = state.model;
  const nlohmann::ordered_json json = {{"model",
                                        {{"model", model.model},
                                         {"layers", model.layers},
                                         {"heads", model.heads},
                                         {"channels", model.channels},
                                         {"seq", model.seq},
                                         {"vocab", model.vocab}}},
                                       {"tokenizer", "byte"},
                                       {"seed", state.seed},
                                       {"train_tokens", state.train_tokens},
                                       {"position", state.position},
                                       {"tokens", state.tokens}};
  return json.dump();
}

Result<RunState> parse_state(const std::string& where, const std::string& text) {
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    const nlohmann::json& model = json.at("model");
    RunState state;
    state.model = {model.at("model").get<std::string>(), model.at("layers").get<size_t>(),
                   model.at("heads").get<size_t>(),      model.at("channels").get<size_t>(),
                   model.at("seq").get<size_t>(),        model.at("vocab").get<size_t>()};
    state.seed = json.at("seed").get<uint64_t>();
    state.train_tokens = json.at("train_tokens").get<uint64_t>();
    state.position = json.at("position").get<uint64_t>();
    state.tokens = json.at("tokens").get<uint64_t>();
    SHARDCOMM_TRY(validate(state.model));
    return state;
  } catch (const nlohmann::json::exception& error) {
    return Status(Code::kDataLoss, fmt::format("'{}': the trainer's state is not readable: {}", where, error.what()));
  }
}

std::string describe(const ModelConfig& config) {
  return fmt::format("{} layers {} heads {} channels {} seq {} vocab {}", config.model, config.layers, config.heads,
                     config.channels, config.seq, config.vocab);
}

}  // namespace shardcomm::trainer
