// Catches: preprocessing that changes on the way through its JSON, and fields that Hugging Face's
// image processors do not know or would understand otherwise.
#include "runtime/config/preprocessing.h"

#include <gtest/gtest.h>

namespace lockstep::config {
namespace {

Json again(const Preprocessing& preprocessing) {
  const Json fields = Json::parse(preprocessor_fields(preprocessing).dump());
  return preprocessor_fields(preprocessing_of(fields));
}

TEST(Preprocessing, OfResizedImages) {
  const Preprocessing images{.images = ImageInputs{224, 224, 256, {0.1f, 0.2f, 0.3f}, {1, 2, 3}}};
  const Json fields = again(images);
  EXPECT_EQ(
      fields.dump(),
      R"({"image_processor_type":"CLIPImageProcessor","do_convert_rgb":true,"do_resize":true,)"
      R"("size":{"shortest_edge":256},"resample":2,"do_center_crop":true,)"
      R"("crop_size":{"height":224,"width":224},"do_rescale":true,)"
      R"("rescale_factor":0.00392156862745098,"do_normalize":true,)"
      R"("image_mean":[0.1,0.2,0.3],"image_std":[1.0,2.0,3.0]})");
  EXPECT_EQ(preprocessing_of(fields).images->mean, images.images->mean);
  EXPECT_EQ(describe(images),
            "pixels / 255, mean 0.1 0.2 0.3, std 1 2 3, shorter side 256, centre 224 x 224");
}

TEST(Preprocessing, OfImagesAsTheyAreStored) {
  const Preprocessing images{.images = ImageInputs{28, 20, 0, {0.5f}, {0.5f}}};
  const Json fields = again(images);
  EXPECT_EQ(fields["size"].dump(), R"({"height":28,"width":20})");
  EXPECT_FALSE(fields["do_center_crop"].get<bool>());
  EXPECT_FALSE(fields["do_convert_rgb"].get<bool>());
  EXPECT_EQ(preprocessing_of(fields).images->resize, 0);
  EXPECT_EQ(describe(images), "pixels / 255, mean 0.5, std 0.5, 28 x 20");
}

TEST(Preprocessing, OfTables) {
  TableInputs table;
  table.columns = {{.name = "age", .mean = 0.1, .std = 1e-300, .missing_indicator = true},
                   {.name = "work", .categorical = true, .categories = {"a \"b\"", "ü"}}};
  table.missing = {"", "?"};
  table.target = "price";
  table.target_mean = 3;
  const Json fields = again({.table = table});
  EXPECT_EQ(fields.dump(),
            R"({"do_normalize":true,"columns":[{"name":"age","kind":"numeric","mean":0.1,)"
            R"("std":1e-300,"missing_indicator":true},{"name":"work","kind":"categorical",)"
            R"("categories":["a \"b\"","ü"]}],"missing_values":["","?"],)"
            R"("target":{"name":"price","mean":3.0,"std":1.0}})");
  EXPECT_EQ(preprocessing_of(fields).table->features(), 5);
  EXPECT_EQ(describe(Preprocessing{.table = table}),
            "1 numeric column standardised, 1 categorical one-hot, target price standardised");
}

TEST(Preprocessing, InTheNetwork) {
  TableInputs table;
  table.target_std = 2;
  Json fields = preprocessor_fields({.table = table});
  mark_as_in_network(fields);
  EXPECT_FALSE(fields["do_normalize"].get<bool>());
  EXPECT_EQ(preprocessing_of(fields).table->target_std, 1);
  fields = preprocessor_fields({.images = ImageInputs{2, 2, 0, {0.5f}, {0.5f}}});
  mark_as_in_network(fields);
  EXPECT_FALSE(fields["do_rescale"].get<bool>());
  EXPECT_FALSE(fields["do_normalize"].get<bool>());
}

TEST(Preprocessing, DamagedFieldsAreRefused) {
  for (const char* damaged :
       {R"({"image_mean":[0.5]})",
        R"({"image_mean":[0.5],"image_std":[],"size":{},"crop_size":{"height":1,"width":1}})",
        R"({"columns":[{"name":"a"}]})"})
    EXPECT_THROW(preprocessing_of(Json::parse(damaged)), JsonError) << damaged;
}

}  // namespace
}  // namespace lockstep::config
