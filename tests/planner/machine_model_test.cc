// The machine's figures as text: what a tune file may hold, and must.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "shardcomm/plan.h"

namespace shardcomm {
namespace {

MachineModel some_model() {
  return {.signal_us = 0.25,
          .switch_us = 2,
          .lookup_us = 0.125,
          .cached_gbs = 16,
          .memory_gbs = 4,
          .attach_us = 0.75,
          .cache_bytes = 1 << 20,
          .attach_gbs = 3,
          .staged_gbs = 5};
}

using Json = nlohmann::ordered_json;

std::string without(const char* key) {
  Json model = Json::parse(some_model().to_json());
  EXPECT_EQ(model.erase(key), 1u) << key;
  return model.dump();
}

std::string with(const char* key, const Json& value) {
  Json model = Json::parse(some_model().to_json());
  model[key] = value;
  return model.dump();
}

std::string error(const std::string& text) {
  const Result<MachineModel> model = MachineModel::parse(text);
  if (model.ok()) return "accepted";
  EXPECT_EQ(model.status().code(), Code::kInvalidArgument);
  return std::string(model.status().message());
}

TEST(MachineModel, IsReadAsItWasWritten) {
  const std::string text = some_model().to_json();
  const Result<MachineModel> read = MachineModel::parse(text);
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->to_json(), text);
  EXPECT_EQ(read->switch_us, 2);
  EXPECT_EQ(read->attach_gbs, 3);
  EXPECT_EQ(read->staged_gbs, 5);
}

TEST(MachineModel, HasNoFigureOfOrdinaryMemoryThatWasNotMeasured) {
  const std::string typical = MachineModel().to_json();
  EXPECT_EQ(typical.find("attach_gbs"), std::string::npos) << typical;
  EXPECT_EQ(typical.find("staged_gbs"), std::string::npos) << typical;
  const Result<MachineModel> neither = MachineModel::parse(typical);
  ASSERT_TRUE(neither.ok()) << neither.status().to_string();
  EXPECT_FALSE(neither->attach_gbs || neither->staged_gbs);

  const Result<MachineModel> staged = MachineModel::parse(without("attach_gbs"));
  ASSERT_TRUE(staged.ok()) << staged.status().to_string();
  EXPECT_FALSE(staged->attach_gbs);
  EXPECT_EQ(staged->staged_gbs, 5);
}

TEST(MachineModel, NamesTheKeyThatIsWrong) {
  for (const char* key :
       {"signal_us", "switch_us", "lookup_us", "cached_gbs", "memory_gbs", "attach_us", "cache_bytes"})
    EXPECT_EQ(error(without(key)), "machine model: no '" + std::string(key) + "'");
  EXPECT_EQ(error(with("colour", 3)), "machine model: unknown key 'colour'");
  for (const char* key : {"signal_us", "attach_gbs", "staged_gbs"}) {
    for (const Json& value : {Json(0), Json(-1.5), Json(nullptr), Json("6")})
      EXPECT_EQ(error(with(key, value)),
                "machine model: '" + std::string(key) + "' is " + value.dump() + ", no positive number");
  }
  for (const char* text : {"", "[]", "3"}) EXPECT_EQ(error(text), "machine model: no JSON object");
}

}  // namespace
}  // namespace shardcomm
