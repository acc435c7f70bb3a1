#include "tools/trainer/generate.h"

#include <algorithm>
#include <map>
#include <vector>

#include "shardcomm/checkpoint.h"
#include "tools/trainer/model.h"
#include "tools/trainer/state.h"
#include "tools/trainer/tokenizer.h"

namespace shardcomm::trainer {
namespace {

// Every parameter of a model, whole. Tied ones share.
class Weights {
 public:
  static Result<Weights> read(const std::string& checkpoint, std::span<const UnitInfo> units) {
    Weights weights;
    for (const UnitInfo& unit : units) {
      std::vector<Parameter> views;
      for (const ParameterInfo& parameter : unit.parameters) {
        const std::string stored = parameter.tied_to.empty() ? full_name(unit, parameter) : parameter.tied_to;
        SHARDCOMM_TRY_ASSIGN(const float* values, weights.find(checkpoint, stored));
        views.push_back({values, nullptr, parameter.count()});
      }
      weights.by_unit_.push_back(std::move(views));
    }
    return weights;
  }
  std::span<const Parameter> unit(size_t u) const { return by_unit_[u]; }

 private:
  Result<const float*> find(const std::string& checkpoint, const std::string& name) {
    if (const auto known = stored_.find(name); known != stored_.end())
      return static_cast<const float*>(known->second.data());
    SHARDCOMM_TRY_ASSIGN(std::vector<float> values, read_checkpoint_parameter(checkpoint, name));
    return static_cast<const float*>(stored_.emplace(name, std::move(values)).first->second.data());
  }
  std::map<std::string, std::vector<float>> stored_;
  std::vector<std::vector<Parameter>> by_unit_;
};

}  // namespace

// Each token is one forward pass over the text so far, the newest `seq` tokens of it.
Status generate(const GenerateOptions& options, const std::function<void(std::string_view)>& emit) {
  SHARDCOMM_TRY(validate(options.sampler));
  SHARDCOMM_TRY_ASSIGN(const CheckpointInfo info, inspect_checkpoint(options.checkpoint));
  SHARDCOMM_TRY_ASSIGN(const RunState state, parse_state(options.checkpoint, info.trainer_state));
  SHARDCOMM_TRY_ASSIGN(const auto model, make_model(state.model, {}));
  SHARDCOMM_TRY_ASSIGN(const Weights weights, Weights::read(options.checkpoint, model->units()));
  const ByteTokenizer tokenizer;
  const auto prompt = tokenizer.encode(options.prompt);
  std::vector<int32_t> text(prompt.begin(), prompt.end());
  if (text.empty()) text.push_back(tokenizer.end_of_text());  // what a document begins after
  Sampler sampler(options.sampler);
  for (size_t made = 0; made < options.tokens; ++made) {
    const size_t length = std::min(text.size(), state.model.seq);
    SHARDCOMM_TRY(model->begin({1, length, std::span<const int32_t>(text).last(length), {}, 1}));
    for (size_t unit = 0; unit < model->units().size(); ++unit) SHARDCOMM_TRY(model->forward(unit, weights.unit(unit)));
    const int32_t token = sampler.next(model->logits().last(state.model.vocab));
    if (token == tokenizer.end_of_text()) return {};
    text.push_back(token);
    emit(tokenizer.decode({&token, 1}));
  }
  return {};
}

}  // namespace shardcomm::trainer
