// The door of src/collectives. An algorithm is a function and a row, not a class. All of them are instances of one
// idea: every rank announces what it does and where its bytes are, everybody checks that all agree, and then each rank
// takes what is its own from its peers' memory. Who takes what is a value (geometry.h).
#pragma once
#include "collectives/all_to_all_v.h"
#include "collectives/chooser.h"
#include "collectives/execution.h"
#include "collectives/operation.h"
#include "collectives/registry.h"
#include "collectives/scratch.h"
