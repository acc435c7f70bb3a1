// What the training loop knows of a model: a list of units, run one after the other, each on parameters that somebody
// else made whole just before. A model owns its activations and no parameter.
//
//   begin(batch);
//   for unit in order:          forward(unit, parameters of unit)
//   loss() or logits()
//   for unit in reverse order:  backward(unit, parameters and gradients of unit)
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shardcomm/status.h"
#include "shardcomm/zero.h"
#include "tools/trainer/config.h"
#include "tools/trainer/init.h"

namespace shardcomm::trainer {

struct ParameterInfo {
  std::string name;           // within its unit, as Hugging Face names it: "attn.c_attn.weight"
  std::vector<size_t> shape;  // row-major
  InitRule init;
  bool decay;                // weight decay applies: matrices yes, vectors no
  std::string tied_to = {};  // "unit.name" of a parameter of an earlier unit whose memory this is

  size_t count() const;  // elements
};

struct UnitInfo {
  std::string name;  // "h.0"
  std::vector<ParameterInfo> parameters;

  size_t count() const;  // elements, tied ones included
};

// "h.0.attn.c_attn.weight": the name in the whole model, which also selects its initial values.
std::string full_name(const UnitInfo& unit, const ParameterInfo& parameter);

// The same units as the ZeRO engine wants them, every parameter of one element type.
std::vector<UnitSpec> zero_units(std::span<const UnitInfo> units, DType dtype);

// One parameter while its unit runs, in the order of UnitInfo::parameters.
struct Parameter {
  const float* value;
  float* gradient;  // null in forward; backward adds to it, so its owner clears it before its first use in a step
  size_t count;
};

// One micro-batch: sequences of equal length, one after another.
struct Batch {
  size_t sequences = 0;              // at most what the model was made for; 0 is legal and contributes nothing
  size_t length = 0;                 // tokens of each, at most config.seq
  std::span<const int32_t> tokens;   // [sequences * length]; must stay valid until the last backward
  std::span<const int32_t> targets;  // the same shape, negative where ignored; or empty: only logits are wanted
  float gradient_scale = 1;          // gradients are of scale * sum of token losses: 1 / valid tokens of all ranks
};

struct Loss {
  double sum = 0;       // of the token losses, in nats
  uint64_t tokens = 0;  // that had a target
};

class Model {
 public:
  virtual ~Model() = default;
  virtual std::span<const UnitInfo> units() const = 0;
  // Checks the batch (sizes, tokens and targets within the vocabulary). Any batch may follow any other.
  virtual Status begin(const Batch& batch) = 0;
  // Fails only on parameters whose number or size is not that of units()[unit].
  virtual Status forward(size_t unit, std::span<const Parameter> parameters) = 0;
  // Once per unit, in reverse order, after a forward pass with targets.
  virtual Status backward(size_t unit, std::span<const Parameter> parameters) = 0;
  virtual Loss loss() const = 0;  // after the last forward of a batch with targets
  virtual std::span<const float> logits()
      const = 0;                                // [rows, vocab], after the last forward of a batch without targets
  virtual size_t activation_bytes() const = 0;  // all memory the model holds, fixed at creation
};

struct ModelOptions {
  size_t sequences = 1;           // of the largest batch
  bool recompute_blocks = false;  // keep only each block's input, run its forward again in backward: one third more
                                  // arithmetic for one block's activations instead of all
};

// The model that config names. Fails on an invalid config, or when memory does not suffice, with the bytes asked for.
Result<std::unique_ptr<Model>> make_model(const ModelConfig& config, const ModelOptions& options);

// What both passes of a model check first.
Status check_parameters(const UnitInfo& unit, std::span<const Parameter> parameters, bool backward);
Status check_batch(const ModelConfig& config, const ModelOptions& options, const Batch& batch);

}  // namespace shardcomm::trainer
