// A small differentiable model on the ZeRO hooks: in (w, b) -> tanh blocks -> out (w tied to in's), squared error.
// Inputs, targets and initial weights depend on names and indices only, so that every world size trains the same thing.
#pragma once
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "shardcomm/optimizer.h"
#include "shardcomm/zero.h"

namespace shardcomm::testing {

inline void must(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.to_string());
}
template <class T>
T must(Result<T> result) {
  must(result.status());
  return std::move(result).value();
}

struct ModelShape {
  size_t inputs = 20;
  size_t width = 40;
  uint32_t blocks = 2;
  bool tied = true;
  bool frozen_block = false;     // block 0
  DType matrices = DType::kF32;  // vectors stay f32, so that bf16 makes mixed units
};

inline std::vector<UnitSpec> model_units(const ModelShape& shape) {
  const auto vector = [](std::string name, size_t n) {
    return ParameterSpec{.name = std::move(name), .shape = {n}, .decay_factor = 0};
  };
  const auto matrix = [&](std::string name, size_t rows, size_t columns) {
    return ParameterSpec{.name = std::move(name), .shape = {rows, columns}, .dtype = shape.matrices};
  };
  std::vector<UnitSpec> units = {{"in", {matrix("w", shape.width, shape.inputs), vector("b", shape.width)}}};
  for (uint32_t i = 0; i < shape.blocks; ++i) {
    UnitSpec block{std::string("h.") + std::to_string(i),
                   {matrix("w", shape.width, shape.width), vector("b", shape.width), vector("scale", shape.width)}};
    for (ParameterSpec& parameter : block.parameters) parameter.trainable = i > 0 || !shape.frozen_block;
    units.push_back(std::move(block));
  }
  units.push_back({"out", {matrix("w", shape.width, shape.inputs), vector("b", shape.inputs)}});
  if (shape.tied) units.back().parameters[0].tied_to = "in.w";
  return units;
}

// In [-1, 1), from a name and two indices (FNV-1a, then a finalizer).
inline float noise(std::string_view name, uint64_t i, uint64_t j) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  hash = (hash ^ i) * 0x9e3779b97f4a7c15;
  hash = (hash ^ (hash >> 29) ^ j) * 0xbf58476d1ce4e5b9;
  hash ^= hash >> 32;
  return static_cast<float>(static_cast<double>(hash >> 40) / 8388608.0 - 1.0);
}

inline Status fill_with_noise(ZeroEngine& engine) {
  return engine.fill_parameters([&](UnitId unit, uint32_t parameter, size_t offset, std::span<float> values) {
    const UnitSpec& spec = engine.units()[unit];
    const std::string name = spec.name + "." + spec.parameters[parameter].name;
    for (size_t i = 0; i < values.size(); ++i) values[i] = 0.3f * noise(name, offset + i, 0);
  });
}

inline float bf16_to_float(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
inline uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline std::vector<float> values_of(const ParameterView& view) {
  std::vector<float> values(view.count);
  for (size_t i = 0; i < view.count; ++i) {
    values[i] = view.dtype == DType::kF32 ? reinterpret_cast<const float*>(view.value)[i]
                                          : bf16_to_float(reinterpret_cast<const uint16_t*>(view.value)[i]);
  }
  return values;
}

inline void add_to_gradient(const ParameterView& view, const std::vector<float>& terms) {
  if (view.gradient == nullptr) return;
  for (size_t i = 0; i < terms.size(); ++i) {
    if (view.gradient_dtype == DType::kF32) {
      reinterpret_cast<float*>(view.gradient)[i] += terms[i];
    } else {
      uint16_t& sum = reinterpret_cast<uint16_t*>(view.gradient)[i];
      sum = float_to_bf16(bf16_to_float(sum) + terms[i]);
    }
  }
}

// Every parameter, whole, in unit order; tied ones once for each place.
inline std::vector<std::vector<float>> all_parameters(ZeroEngine& engine) {
  std::vector<std::vector<float>> all;
  for (UnitId unit = 0; unit < engine.units().size(); ++unit) {
    must(engine.before(unit, Pass::kForward, StreamRef::caller()));
    for (const ParameterView& view : engine.parameters(unit)) all.push_back(values_of(view));
    must(engine.after(unit, Pass::kForward, StreamRef::caller()));
  }
  must(engine.finish_step(StreamRef::caller()));
  return all;
}

// One rank's part of the model: activations of its samples.
class Model {
 public:
  Model(ZeroEngine& engine, const ModelShape& shape, StreamRef compute)
      : engine_(engine), shape_(shape), compute_(compute) {}

  // Forward and backward of samples [first, last) of `step`; loss and gradients are divided by `divisor`. Call
  // take_loss() after finish_step and a synchronized compute stream.
  void run(uint64_t step, size_t first, size_t last, float divisor) {
    const Batch batch{step, first, last - first, divisor};
    const auto units = static_cast<UnitId>(shape_.blocks + 2);
    for (UnitId u = 0; u < units; ++u) use(u, Pass::kForward, batch);
    for (UnitId u = units; u-- > 0;) use(u, Pass::kBackward, batch);
  }
  void forward_only(uint64_t step, size_t first, size_t last) {
    for (UnitId u = 0; u < shape_.blocks + 2; ++u) use(u, Pass::kForward, {step, first, last - first, 1});
  }
  double take_loss() { return std::exchange(loss_, 0); }

 private:
  using Views = std::vector<ParameterView>;

  // By value in the stream's work: the caller may be preparing the next one.
  struct Batch {
    uint64_t step;
    size_t first, samples;
    float divisor;
  };

  void use(UnitId unit, Pass pass, const Batch& batch) {
    must(engine_.before(unit, pass, compute_));
    const auto views = engine_.parameters(unit);
    must(compute_.enqueue(
        [this, unit, pass, batch, copy = Views(views.begin(), views.end())] { compute(unit, pass, copy, batch); }));
    must(engine_.after(unit, pass, compute_));
  }

  void compute(UnitId unit, Pass pass, const Views& views, const Batch& batch) {
    const bool forward = pass == Pass::kForward;
    if (unit == 0) {
      forward ? enter(views, batch) : leave(views, batch);
    } else if (unit <= shape_.blocks) {
      forward ? block(unit, views, batch.samples) : block_back(unit, views, batch.samples);
    } else {
      forward ? head(views, batch) : head_back(views, batch.samples);
    }
  }

  static float input(const Batch& batch, size_t sample, size_t i) {
    return noise("x", batch.step * 1000 + batch.first + sample, i);
  }
  static float target(const Batch& batch, size_t sample, size_t i) {
    return 0.5f * std::sin(3 * input(batch, sample, i));
  }

  void enter(const Views& views, const Batch& batch) {
    const auto w = values_of(views[0]), b = values_of(views[1]);
    activations_.assign(shape_.blocks + 1, std::vector<float>(batch.samples * shape_.width));
    for (size_t s = 0; s < batch.samples; ++s) {
      for (size_t h = 0; h < shape_.width; ++h) {
        float z = b[h];
        for (size_t d = 0; d < shape_.inputs; ++d) z += w[h * shape_.inputs + d] * input(batch, s, d);
        activations_[0][s * shape_.width + h] = std::tanh(z);
      }
    }
  }

  void block(UnitId unit, const Views& views, size_t samples) {
    const auto w = values_of(views[0]), b = values_of(views[1]), scale = values_of(views[2]);
    const std::vector<float>& in = activations_[unit - 1];
    std::vector<float>& out = activations_[unit];
    for (size_t s = 0; s < samples; ++s) {
      for (size_t h = 0; h < shape_.width; ++h) {
        const float t = std::tanh(dot(w, h, in, s) + b[h]);
        out[s * shape_.width + h] = in[s * shape_.width + h] + t * scale[h];
      }
    }
  }

  void head(const Views& views, const Batch& batch) {
    const auto w = values_of(views[0]), b = values_of(views[1]);
    const std::vector<float>& in = activations_.back();
    errors_.assign(batch.samples * shape_.inputs, 0);
    for (size_t s = 0; s < batch.samples; ++s) {
      for (size_t d = 0; d < shape_.inputs; ++d) {
        float z = b[d];
        for (size_t h = 0; h < shape_.width; ++h) z += w[h * shape_.inputs + d] * in[s * shape_.width + h];
        const float error = z - target(batch, s, d);
        loss_ += 0.5 * static_cast<double>(error) * static_cast<double>(error) / static_cast<double>(batch.divisor);
        errors_[s * shape_.inputs + d] = error / batch.divisor;
      }
    }
  }

  void head_back(const Views& views, size_t samples) {
    const auto w = values_of(views[0]);
    std::vector<float> dw(w.size()), db(shape_.inputs);
    const std::vector<float>& in = activations_.back();
    upstream_.assign(samples * shape_.width, 0);
    for (size_t s = 0; s < samples; ++s) {
      for (size_t d = 0; d < shape_.inputs; ++d) {
        const float error = errors_[s * shape_.inputs + d];
        db[d] += error;
        for (size_t h = 0; h < shape_.width; ++h) {
          dw[h * shape_.inputs + d] += error * in[s * shape_.width + h];
          upstream_[s * shape_.width + h] += error * w[h * shape_.inputs + d];
        }
      }
    }
    add_to_gradient(views[0], dw);
    add_to_gradient(views[1], db);
  }

  void block_back(UnitId unit, const Views& views, size_t samples) {
    const auto w = values_of(views[0]), b = values_of(views[1]), scale = values_of(views[2]);
    std::vector<float> dw(w.size()), db(shape_.width), dscale(shape_.width), below = upstream_;
    const std::vector<float>& in = activations_[unit - 1];
    for (size_t s = 0; s < samples; ++s) {
      for (size_t h = 0; h < shape_.width; ++h) {
        const float t = std::tanh(dot(w, h, in, s) + b[h]);
        const float up = upstream_[s * shape_.width + h];
        const float dz = up * scale[h] * (1 - t * t);
        dscale[h] += up * t;
        db[h] += dz;
        for (size_t k = 0; k < shape_.width; ++k) {
          dw[h * shape_.width + k] += dz * in[s * shape_.width + k];
          below[s * shape_.width + k] += dz * w[h * shape_.width + k];
        }
      }
    }
    upstream_ = std::move(below);
    add_to_gradient(views[0], dw);
    add_to_gradient(views[1], db);
    add_to_gradient(views[2], dscale);
  }

  void leave(const Views& views, const Batch& batch) {
    std::vector<float> dw(shape_.width * shape_.inputs), db(shape_.width);
    for (size_t s = 0; s < batch.samples; ++s) {
      for (size_t h = 0; h < shape_.width; ++h) {
        const float a = activations_[0][s * shape_.width + h];
        const float dz = upstream_[s * shape_.width + h] * (1 - a * a);
        db[h] += dz;
        for (size_t d = 0; d < shape_.inputs; ++d) dw[h * shape_.inputs + d] += dz * input(batch, s, d);
      }
    }
    add_to_gradient(views[0], dw);
    add_to_gradient(views[1], db);
  }

  float dot(const std::vector<float>& w, size_t row, const std::vector<float>& in, size_t sample) const {
    float sum = 0;
    for (size_t k = 0; k < shape_.width; ++k) sum += w[row * shape_.width + k] * in[sample * shape_.width + k];
    return sum;
  }

  ZeroEngine& engine_;
  const ModelShape shape_;
  StreamRef compute_;
  double loss_ = 0;
  std::vector<std::vector<float>> activations_;
  std::vector<float> errors_, upstream_;
};

inline constexpr size_t kGlobalBatch = 12;  // samples a step, for 1, 2, 3, 4, 6 or 12 ranks

struct TrainingPlan {
  uint64_t first_step = 0;
  uint64_t steps = 20;
  int micro_batches = 1;  // divides kGlobalBatch / ranks
  bool defer = false;     // reduce after the last micro-batch only
};

struct Trajectory {
  std::vector<double> losses, norms;
  bool operator==(const Trajectory&) const = default;
};

// Trains with clipping, as a training loop would.
inline Trajectory train(ZeroEngine& engine, AdamW& adam, const ModelShape& shape, const TrainingPlan& plan,
                        StreamRef compute) {
  Communicator& comm = engine.communicator();
  Model model(engine, shape, compute);
  Trajectory trajectory;
  const size_t share = kGlobalBatch / static_cast<size_t>(comm.size());
  const size_t micro = share / static_cast<size_t>(plan.micro_batches);
  const auto divisor = static_cast<float>(kGlobalBatch * shape.inputs);
  for (uint64_t step = plan.first_step; step < plan.first_step + plan.steps; ++step) {
    for (int m = 0; m < plan.micro_batches; ++m) {
      engine.set_gradient_sync(!plan.defer || m + 1 == plan.micro_batches);
      const size_t first = static_cast<size_t>(comm.rank()) * share + static_cast<size_t>(m) * micro;
      model.run(step, first, first + micro, divisor);
      must(engine.finish_step(compute));
    }
    const double norm = must(engine.gradient_norm());
    const float rate = 0.02f / (1 + 0.1f * static_cast<float>(step));
    must(adam.step(rate, norm > 0.2 ? static_cast<float>(0.2 / norm) : 1.0f));
    must(compute.synchronize(std::chrono::steady_clock::now() + std::chrono::seconds(20)));
    double loss = model.take_loss(), total = 0;
    must(must(comm.all_reduce({&loss, &total, 1, DType::kF64}, StreamRef::caller())).synchronize(Deadline::max()));
    trajectory.losses.push_back(total);
    trajectory.norms.push_back(norm);
  }
  return trajectory;
}

}  // namespace shardcomm::testing
