// Loading at any world size, and looking at checkpoints without an engine.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "base/log.h"
#include "shardcomm/checkpoint.h"
#include "zero/agree.h"
#include "zero/checkpoint/reader.h"
#include "zero/checkpoint/safetensors.h"
#include "zero/checkpoint/states.h"
#include "zero/unit.h"

namespace shardcomm {
namespace {

using zero::CheckpointReader;
using zero::Manifest;

std::string text(const std::vector<size_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

Status match_tensor(const Manifest& manifest, const std::string& name, const std::vector<size_t>& shape,
                    std::string_view remark = {}) {
  const auto found = manifest.tensors.find(name);
  if (found == manifest.tensors.end())
    return Status(Code::kInvalidArgument, fmt::format("the checkpoint has no {}{}", name, remark));
  if (found->second.shape == shape) return {};
  return Status(Code::kInvalidArgument, fmt::format("{} has shape {} in the checkpoint, {} in the model", name,
                                                    text(found->second.shape), text(shape)));
}

std::vector<std::string> difference(const std::vector<std::string>& of, const std::vector<std::string>& from) {
  std::vector<std::string> rest;
  std::ranges::set_difference(of, from, std::back_inserter(rest));
  return rest;
}

// What is asked for is there, and what is there is asked for. Both lists are sorted.
Status match_states(const Manifest& manifest, const std::vector<std::string>& asked, const LoadCheckpointArgs& args) {
  const std::string lists =
      fmt::format("asked for are {}, the checkpoint has {}", zero::list_text(asked), zero::list_text(manifest.states));
  if (const auto missing = difference(asked, manifest.states); !missing.empty()) {
    return Status(Code::kInvalidArgument,
                  fmt::format("the checkpoint lacks states {}: {}; it was saved {}", zero::list_text(missing), lists,
                              manifest.adamw ? "with AdamW" : "without AdamW"));
  }
  if (args.optimizer != nullptr && !manifest.adamw) {
    return Status(Code::kInvalidArgument,
                  "the checkpoint was saved without AdamW, so its states m and v have no step count; load them as "
                  "states of those names");
  }
  const auto others = difference(manifest.states, asked);
  if (others.empty() || args.ignore_other_states) return {};
  return Status(Code::kInvalidArgument,
                fmt::format("states {} of the checkpoint were not asked for: {}; give their arrays, or set "
                            "ignore_other_states to go on without them",
                            zero::list_text(others), lists));
}

// Every parameter of the model, with states where it is trained; and no others. States of what is frozen now are left
// where they are.
Status match(const Manifest& manifest, std::span<const UnitSpec> units, const std::vector<std::string>& asked,
             const LoadCheckpointArgs& args) {
  std::set<std::string> parameters;
  for (const UnitSpec& unit : units) {
    for (uint32_t p = 0; p < unit.parameters.size(); ++p) {
      const ParameterSpec& spec = unit.parameters[p];
      if (!spec.tied_to.empty()) continue;
      const std::string& name = *parameters.insert(zero::full_name(unit, p)).first;
      SHARDCOMM_TRY(match_tensor(manifest, name, spec.shape));
    }
  }
  for (const auto& [name, unused] : manifest.tensors) {
    const std::string state = zero::state_of(manifest, name);
    const std::string parameter = state.empty() ? name : name.substr(0, name.size() - state.size() - 1);
    if (!parameters.contains(name) && !parameters.contains(parameter))
      return Status(Code::kInvalidArgument, fmt::format("the model has no {}", name));
  }
  SHARDCOMM_TRY(match_states(manifest, asked, args));
  for (const UnitSpec& unit : units) {
    for (uint32_t p = 0; p < unit.parameters.size(); ++p) {
      const ParameterSpec& spec = unit.parameters[p];
      if (!spec.tied_to.empty() || !spec.trainable) continue;
      for (const std::string& state : asked) {
        SHARDCOMM_TRY(match_tensor(manifest, zero::state_tensor(zero::full_name(unit, p), state), spec.shape,
                                   ": the parameter was frozen when it was saved"));
      }
    }
  }
  return {};
}

Status read_into(const CheckpointReader& reader, ZeroEngine& engine, const std::vector<NamedState>& states) {
  Status read;
  SHARDCOMM_TRY(engine.fill_parameters([&](UnitId unit, uint32_t parameter, size_t offset, std::span<float> values) {
    if (read.ok()) read = reader.read(zero::full_name(engine.units()[unit], parameter), offset, values);
  }));
  for (const ShardPiece& piece : engine.pieces()) {
    if (piece.master == nullptr) continue;
    const std::string name = zero::full_name(engine.units()[piece.unit], piece.parameter);
    for (const NamedState& state : states) {
      const auto values = state.values.subspan(piece.state_offset, piece.count);
      if (read.ok()) read = reader.read(zero::state_tensor(name, state.name), piece.offset, values);
    }
  }
  return read;
}

// Of all ranks: what they ask for, and that it is there. Each rank checks a part of the bytes, before anything is
// overwritten.
Status check(const ZeroEngine& engine, const Result<CheckpointReader>& reader,
             const Result<std::vector<NamedState>>& states, const LoadCheckpointArgs& args) {
  Communicator& comm = engine.communicator();
  SHARDCOMM_TRY(zero::agree(comm, states.status()));
  SHARDCOMM_TRY(zero::agree_on_states(comm, args.optimizer, states.value()));
  Status fits = reader.status();
  if (fits.ok()) fits = match(reader.value().manifest(), engine.units(), zero::names_of(states.value()), args);
  if (fits.ok()) fits = reader.value().verify(static_cast<size_t>(comm.rank()), static_cast<size_t>(comm.size()));
  SHARDCOMM_TRY(zero::agree(comm, fits));
  const Manifest& manifest = reader.value().manifest();
  const std::vector<zero::Field> same = {{"the step", manifest.step},
                                         {"the generation", manifest.generation},
                                         {"the number of optimizer steps", manifest.optimizer_steps}};
  return zero::agree_on(comm, same, "checkpoints read");
}

Result<LoadedCheckpoint> load(ZeroEngine& engine, const std::string& path, const LoadCheckpointArgs& args) {
  Communicator& comm = engine.communicator();
  auto reader = CheckpointReader::open(path);
  auto states = zero::all_states(engine, args.optimizer, args.states);
  SHARDCOMM_TRY(check(engine, reader, states, args));
  if (Status read = zero::agree(comm, read_into(reader.value(), engine, states.value())); !read.ok()) {
    return read.context("overwriting parameters, which are now of no use");
  }
  const Manifest& manifest = reader->manifest();
  if (args.optimizer != nullptr) args.optimizer->set_steps(manifest.optimizer_steps);
  if (const auto left = difference(manifest.states, zero::names_of(states.value()));
      !left.empty() && comm.rank() == 0) {
    log(Level::kInfo, "rank 0 loads {} without its states {}", path, zero::list_text(left));
  }
  return LoadedCheckpoint{manifest.step, manifest.trainer_state, manifest.optimizer_steps};
}

// Of a parameter, or of a state beside one; what is tied is stored once, under its owner's name.
std::string stored_name(const Manifest& manifest, const std::string& name) {
  if (const auto tied = manifest.tied.find(name); tied != manifest.tied.end()) return tied->second;
  const size_t slash = name.rfind('/');
  if (slash == std::string::npos) return name;
  const auto tied = manifest.tied.find(name.substr(0, slash));
  return tied == manifest.tied.end() ? name : tied->second + name.substr(slash);
}

}  // namespace

Result<LoadedCheckpoint> load_checkpoint(ZeroEngine& engine, const std::string& path, const LoadCheckpointArgs& args) {
  auto loaded = load(engine, path, args);
  if (!loaded.ok()) return loaded.status().context(fmt::format("loading checkpoint {}", path));
  return loaded;
}

Result<LoadedCheckpoint> load_checkpoint(ZeroEngine& engine, AdamW& optimizer, const std::string& path) {
  return load_checkpoint(engine, path, {.optimizer = &optimizer});
}

Result<CheckpointInfo> inspect_checkpoint(const std::string& path) {
  SHARDCOMM_TRY_ASSIGN(const CheckpointReader reader, CheckpointReader::open(path));
  const Manifest& manifest = reader.manifest();
  CheckpointInfo info{.step = manifest.step,
                      .world_size = manifest.world_size,
                      .total_bytes = static_cast<size_t>(reader.total_bytes()),
                      .tensors = {},
                      .files = reader.files(),
                      .trainer_state = manifest.trainer_state,
                      .states = manifest.states,
                      .optimizer = manifest.adamw ? "adamw" : "",
                      .optimizer_steps = manifest.optimizer_steps};
  for (const auto& [name, tensor] : manifest.tensors) {
    info.tensors.push_back({name, tensor.shape, "F32", zero::state_of(manifest, name)});
  }
  return info;
}

Status verify_checkpoint(const std::string& path) {
  SHARDCOMM_TRY_ASSIGN(const CheckpointReader reader, CheckpointReader::open(path));
  return reader.verify(0, 1);
}

Result<std::vector<float>> read_checkpoint_parameter(const std::string& path, const std::string& name) {
  SHARDCOMM_TRY_ASSIGN(const CheckpointReader reader, CheckpointReader::open(path));
  const Manifest& manifest = reader.manifest();
  const std::string stored = stored_name(manifest, name);
  const auto tensor = manifest.tensors.find(stored);
  if (tensor == manifest.tensors.end()) {
    return Status(Code::kInvalidArgument, fmt::format("checkpoint {} has no parameter {}", path, name));
  }
  SHARDCOMM_TRY(reader.verify_tensor(stored));
  size_t count = 0;
  zero::count_elements(tensor->second.shape, count);
  std::vector<float> values(count);
  SHARDCOMM_TRY(reader.read(stored, 0, values));
  return values;
}

}  // namespace shardcomm
