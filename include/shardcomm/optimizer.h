// AdamW over the shards of a ZeroEngine (Kingma & Ba 2015; decoupled decay, Loshchilov & Hutter 2019).
#pragma once
#include <memory>
#include <span>

#include "shardcomm/zero.h"

namespace shardcomm {

struct AdamWOptions {
  float beta1 = 0.9f;
  float beta2 = 0.95f;
  float eps = 1e-8f;
  float weight_decay = 0.1f;  // times ParameterSpec::decay_factor
};

// The f32 optimizer state of one ShardPiece, in the order of ZeroEngine::pieces(); all null for frozen parameters.
struct MomentPiece {
  float* master;  // ShardPiece::master
  float* m;
  float* v;
};

// Thread rule: that of its engine, which may be moved. Uses nothing of it but its public functions. After the engine
// has been destroyed, step() is undefined; destroying the optimizer is not.
class SHARDCOMM_EXPORT AdamW {
 public:
  // Local; moments are zero. kInvalidArgument where every parameter is frozen.
  static Result<AdamW> create(ZeroEngine& engine, const AdamWOptions& options);
  AdamW(AdamW&&) noexcept;
  AdamW& operator=(AdamW&&) noexcept;
  ~AdamW();

  // Makes one update with gradient * gradient_scale (clipping), from begin_update() to publish(), then zeroes the
  // gradients. Waits for what is in flight. Stages 1 and 2 enqueue the gather of the new parameters, which the next
  // before() joins.
  Status step(float learning_rate, float gradient_scale = 1);
  uint64_t steps() const noexcept;  // updates so far; drives the bias correction
  void set_steps(uint64_t steps) noexcept;
  std::span<const MomentPiece> pieces() const noexcept;
  // All of m and all of v: ZeroEngine::optimized_count() elements, of which a piece has those from its state_offset on.
  std::span<float> first_moments() const noexcept;
  std::span<float> second_moments() const noexcept;
  const AdamWOptions& options() const noexcept;

  struct Impl;

 private:
  explicit AdamW(std::unique_ptr<Impl>) noexcept;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shardcomm
