// Lion (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms") over the shards of a ZeroEngine: an
// optimizer that is not part of the library. It works at every stage, on f32 and on bf16 parameters, because it writes
// f32 masters between begin_update() and publish() and leaves the rest to the engine.
#pragma once
#include <shardcomm/shardcomm.h>

#include <memory>
#include <vector>

struct LionOptions {
  float beta1 = 0.9f;
  float beta2 = 0.99f;
  float weight_decay = 0;  // times ParameterSpec::decay_factor
};

class Lion {
 public:
  // The engine may be moved, but step() needs it.
  Lion(shardcomm::ZeroEngine& engine, const LionOptions& options)
      : engine_(engine.ref()),
        options_(options),
        momentum_(engine.optimized_count()),
        counted_(engine.count_optimizer_bytes(momentum_.size() * sizeof(float))) {}

  // What a checkpoint keeps of it (checkpoint.h).
  std::vector<shardcomm::NamedState> states() { return {{"momentum", momentum_}}; }

  // Call it after finish_step() on every rank.
  shardcomm::Status step(float learning_rate) {
    SHARDCOMM_TRY(engine_->begin_update());
    for (const shardcomm::ShardPiece& piece : engine_->pieces()) {
      if (piece.master != nullptr) update(piece, learning_rate);  // null: frozen
    }
    SHARDCOMM_TRY(engine_->publish());
    return engine_->zero_gradients();
  }

 private:
  void update(const shardcomm::ShardPiece& piece, float learning_rate) {
    const float decay_factor = engine_->units()[piece.unit].parameters[piece.parameter].decay_factor;
    const float shrink = 1 - learning_rate * options_.weight_decay * decay_factor;
    float* momentum = &momentum_[piece.state_offset];
    for (size_t i = 0; i < piece.count; ++i) {
      const float gradient = piece.gradient[i];
      const float blend = options_.beta1 * momentum[i] + (1 - options_.beta1) * gradient;
      const float sign = static_cast<float>(blend > 0) - static_cast<float>(blend < 0);
      piece.master[i] = piece.master[i] * shrink - learning_rate * sign;
      momentum[i] = options_.beta2 * momentum[i] + (1 - options_.beta2) * gradient;
    }
  }

  shardcomm::ZeroEngine::Ref engine_;
  LionOptions options_;
  std::vector<float> momentum_;
  std::shared_ptr<const void> counted_;  // makes memory() include the momentum
};
