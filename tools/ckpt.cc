// shardcomm ckpt: what a checkpoint holds, and whether every byte of it is as it was written.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "shardcomm/checkpoint.h"
#include "tools/checkpoint_path.h"
#include "tools/command.h"

namespace shardcomm::tools {
namespace {

struct Request {
  std::string path;
  bool json = false;
};

void print_text(const std::string& path, const CheckpointInfo& info) {
  fmt::print("{}: step {}, written by {} ranks, {} bytes in {} files\n", path, info.step, info.world_size,
             info.total_bytes, info.files.size());
  for (const std::string& file : info.files) fmt::print("  {}\n", file);
  fmt::print("{} tensors\n", info.tensors.size());
  for (const CheckpointTensor& tensor : info.tensors)
    fmt::print("  {:<40} {:<5} [{}]\n", tensor.name, tensor.dtype, fmt::join(tensor.shape, ", "));
  if (!info.trainer_state.empty()) fmt::print("trainer state {}\n", info.trainer_state);
}

void print_json(const std::string& path, const CheckpointInfo& info) {
  using Json = nlohmann::ordered_json;
  Json tensors = Json::array();
  for (const CheckpointTensor& tensor : info.tensors)
    tensors.push_back({{"name", tensor.name}, {"dtype", tensor.dtype}, {"shape", tensor.shape}});
  Json state = Json::parse(info.trainer_state, nullptr, false);
  if (state.is_discarded()) state = nullptr;
  const Json all = {
      {"path", path},        {"step", info.step},  {"world_size", info.world_size}, {"total_bytes", info.total_bytes},
      {"files", info.files}, {"tensors", tensors}, {"trainer_state", state}};
  fmt::print("{}\n", all.dump(2));
}

std::shared_ptr<Request> add_path(Flags& flags) {
  auto request = std::make_shared<Request>();
  flags.text("path", request->path, "A step directory, or a directory of them: then the newest complete one", "PATH")
      .required();
  return request;
}

}  // namespace

Subcommand add_checkpoint_inspect(CLI::App& app) {
  Flags flags = add_subcommand(app, "inspect", "Show the step, the files and the tensors of a checkpoint.");
  const auto request = add_path(flags);
  flags.toggle("--json", request->json, "As one JSON object");
  return {flags.app(), [request](const Invocation&) -> Result<int> {
            SHARDCOMM_TRY_ASSIGN(const std::string path, checkpoint_path(request->path));
            SHARDCOMM_TRY_ASSIGN(const CheckpointInfo info, inspect_checkpoint(path));
            request->json ? print_json(path, info) : print_text(path, info);
            return 0;
          }};
}

Subcommand add_checkpoint_verify(CLI::App& app) {
  Flags flags = add_subcommand(app, "verify", "Read every byte of a checkpoint and compare the checksums.");
  const auto request = add_path(flags);
  return {flags.app(), [request](const Invocation&) -> Result<int> {
            SHARDCOMM_TRY_ASSIGN(const std::string path, checkpoint_path(request->path));
            SHARDCOMM_TRY(verify_checkpoint(path));
            SHARDCOMM_TRY_ASSIGN(const CheckpointInfo info, inspect_checkpoint(path));
            fmt::print("{}: ok, step {}, {} tensors, {} bytes in {} files\n", path, info.step, info.tensors.size(),
                       info.total_bytes, info.files.size());
            return 0;
          }};
}

}  // namespace shardcomm::tools
