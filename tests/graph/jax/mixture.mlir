module @jit_mixture attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<8xf32> loc("params['first']"), %arg1: tensor<8x8xf32> loc("params['mix']"), %arg2: tensor<16x8xf32> loc("params['wte']"), %arg3: tensor<2x6xi32> loc("tokens"), %arg4: tensor<2x6xi32> loc("targets")) -> (tensor<f32> {jax.result_info = "result"}) {
    %cst = stablehlo.constant dense<[[0.000000e+00, 1.000000e+00, 0.000000e+00, 1.000000e+00, 0.000000e+00, 1.000000e+00, 0.000000e+00, 1.000000e+00], [0.841470957, 0.950415253, 0.0998334139, 0.999500036, 0.00999983306, 0.999994993, 9.99999814E-4, 0.99999994], [0.909297406, 0.806578398, 0.198669329, 0.998000681, 0.0199986659, 0.999979972, 0.0019999987, 0.999999821], [1.411200e-01, 0.582753599, 0.295520216, 0.995503365, 0.029995501, 0.999954998, 0.0029999956, 0.999999523], [-0.756802499, 0.301137477, 0.389418334, 0.992010653, 0.0399893336, 9.999200e-01, 0.00399998948, 0.999999225], [-0.958924293, -0.0103423186, 0.47942555, 0.987525999, 0.0499791689, 9.998750e-01, 0.0049999794, 0.999998748]]> : tensor<6x8xf32>
    %c = stablehlo.constant dense<[[true, false, false, false, false, false], [true, true, false, false, false, false], [true, true, true, false, false, false], [true, true, true, true, false, false], [true, true, true, true, true, false], [true, true, true, true, true, true]]> : tensor<6x6xi1>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<i32>) -> tensor<2x6xi32>
    %1 = stablehlo.compare LT, %arg3, %0, SIGNED : (tensor<2x6xi32>, tensor<2x6xi32>) -> tensor<2x6xi1>
    %c_1 = stablehlo.constant dense<16> : tensor<i32>
    %2 = stablehlo.broadcast_in_dim %c_1, dims = [] : (tensor<i32>) -> tensor<2x6xi32>
    %3 = stablehlo.add %arg3, %2 : tensor<2x6xi32>
    %4 = stablehlo.select %1, %3, %arg3 : tensor<2x6xi1>, tensor<2x6xi32>
    %5 = stablehlo.broadcast_in_dim %4, dims = [0, 1] : (tensor<2x6xi32>) -> tensor<2x6x1xi32>
    %6 = "stablehlo.gather"(%arg2, %5) <{dimension_numbers = #stablehlo.gather<offset_dims = [2], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 2>, indices_are_sorted = false, slice_sizes = array<i64: 1, 8>}> : (tensor<16x8xf32>, tensor<2x6x1xi32>) -> tensor<2x6x8xf32>
    %7 = stablehlo.broadcast_in_dim %cst, dims = [1, 2] : (tensor<6x8xf32>) -> tensor<1x6x8xf32>
    %8 = stablehlo.broadcast_in_dim %7, dims = [0, 1, 2] : (tensor<1x6x8xf32>) -> tensor<2x6x8xf32>
    %9 = stablehlo.add %6, %8 : tensor<2x6x8xf32>
    %cst_2 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %10 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<2x8xf32>
    %11 = stablehlo.transpose %9, dims = [1, 0, 2] : (tensor<2x6x8xf32>) -> tensor<6x2x8xf32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %12 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<6x2x8xf32>
    %c_4 = stablehlo.constant dense<0> : tensor<i32>
    %13:5 = stablehlo.while(%iterArg = %11, %iterArg_28 = %arg1, %iterArg_29 = %c_4, %iterArg_30 = %10, %iterArg_31 = %12) : tensor<6x2x8xf32>, tensor<8x8xf32>, tensor<i32>, tensor<2x8xf32>, tensor<6x2x8xf32>
    cond {
      %c_32 = stablehlo.constant dense<6> : tensor<i32>
      %97 = stablehlo.compare LT, %iterArg_29, %c_32, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %97 : tensor<i1>
    } do {
      %97 = func.call @dynamic_index_in_dim(%iterArg, %iterArg_29) : (tensor<6x2x8xf32>, tensor<i32>) -> tensor<2x8xf32>
      %98:2 = func.call @closed_call(%iterArg_28, %iterArg_30, %97) : (tensor<8x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>) -> (tensor<2x8xf32>, tensor<2x8xf32>)
      %99 = func.call @dynamic_update_index_in_dim(%iterArg_31, %98#1, %iterArg_29) : (tensor<6x2x8xf32>, tensor<2x8xf32>, tensor<i32>) -> tensor<6x2x8xf32>
      %c_32 = stablehlo.constant dense<1> : tensor<i32>
      %100 = stablehlo.add %iterArg_29, %c_32 : tensor<i32>
      stablehlo.return %iterArg, %iterArg_28, %100, %98#0, %99 : tensor<6x2x8xf32>, tensor<8x8xf32>, tensor<i32>, tensor<2x8xf32>, tensor<6x2x8xf32>
    }
    %14 = stablehlo.transpose %13#4, dims = [1, 0, 2] : (tensor<6x2x8xf32>) -> tensor<2x6x8xf32>
    %15 = stablehlo.transpose %14, dims = [0, 2, 1] : (tensor<2x6x8xf32>) -> tensor<2x8x6xf32>
    %16 = stablehlo.dot_general %14, %15, batching_dims = [0] x [0], contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<2x6x8xf32>, tensor<2x8x6xf32>) -> tensor<2x6x6xf32>
    %cst_5 = stablehlo.constant dense<-1.000000e+09> : tensor<f32>
    %17 = call @_where(%c, %16, %cst_5) : (tensor<6x6xi1>, tensor<2x6x6xf32>, tensor<f32>) -> tensor<2x6x6xf32>
    %cst_6 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %18 = stablehlo.reduce(%17 init: %cst_6) applies stablehlo.maximum across dimensions = [2] : (tensor<2x6x6xf32>, tensor<f32>) -> tensor<2x6xf32>
    %cst_7 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %19 = stablehlo.broadcast_in_dim %cst_7, dims = [] : (tensor<f32>) -> tensor<2x6xf32>
    %20 = stablehlo.maximum %19, %18 : tensor<2x6xf32>
    %21 = stablehlo.broadcast_in_dim %20, dims = [0, 1] : (tensor<2x6xf32>) -> tensor<2x6x1xf32>
    %22 = stablehlo.broadcast_in_dim %21, dims = [0, 1, 2] : (tensor<2x6x1xf32>) -> tensor<2x6x6xf32>
    %23 = stablehlo.subtract %17, %22 : tensor<2x6x6xf32>
    %24 = stablehlo.exponential %23 : tensor<2x6x6xf32>
    %cst_8 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %25 = stablehlo.reduce(%24 init: %cst_8) applies stablehlo.add across dimensions = [2] : (tensor<2x6x6xf32>, tensor<f32>) -> tensor<2x6xf32>
    %26 = stablehlo.broadcast_in_dim %25, dims = [0, 1] : (tensor<2x6xf32>) -> tensor<2x6x1xf32>
    %27 = stablehlo.broadcast_in_dim %26, dims = [0, 1, 2] : (tensor<2x6x1xf32>) -> tensor<2x6x6xf32>
    %28 = stablehlo.divide %24, %27 : tensor<2x6x6xf32>
    %29 = stablehlo.dot_general %28, %14, batching_dims = [0] x [0], contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<2x6x6xf32>, tensor<2x6x8xf32>) -> tensor<2x6x8xf32>
    %30 = call @cumsum(%14) : (tensor<2x6x8xf32>) -> tensor<2x6x8xf32>
    %cst_9 = stablehlo.constant dense<6.000000e+00> : tensor<f32>
    %31 = stablehlo.broadcast_in_dim %cst_9, dims = [] : (tensor<f32>) -> tensor<2x6x8xf32>
    %32 = stablehlo.divide %30, %31 : tensor<2x6x8xf32>
    %33 = stablehlo.add %29, %32 : tensor<2x6x8xf32>
    %c_10 = stablehlo.constant dense<0> : tensor<i32>
    %c_11 = stablehlo.constant dense<0> : tensor<i32>
    %34:3 = stablehlo.while(%iterArg = %c_11, %iterArg_28 = %c_10, %iterArg_29 = %33) : tensor<i32>, tensor<i32>, tensor<2x6x8xf32>
    cond {
      %c_30 = stablehlo.constant dense<3> : tensor<i32>
      %97 = stablehlo.compare LT, %iterArg, %c_30, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %97 : tensor<i1>
    } do {
      %97:2 = func.call @closed_call_1(%iterArg_28, %iterArg_29) : (tensor<i32>, tensor<2x6x8xf32>) -> (tensor<i32>, tensor<2x6x8xf32>)
      %c_30 = stablehlo.constant dense<1> : tensor<i32>
      %98 = stablehlo.add %iterArg, %c_30 : tensor<i32>
      stablehlo.return %98, %97#0, %97#1 : tensor<i32>, tensor<i32>, tensor<2x6x8xf32>
    }
    %35 = call @argmax(%34#2) : (tensor<2x6x8xf32>) -> tensor<2x6xi32>
    %36 = call @_one_hot(%35) : (tensor<2x6xi32>) -> tensor<2x6x8xf32>
    %37 = stablehlo.multiply %36, %34#2 : tensor<2x6x8xf32>
    %38 = stablehlo.add %34#2, %37 : tensor<2x6x8xf32>
    %39 = call @softplus(%34#2) : (tensor<2x6x8xf32>) -> tensor<2x6x8xf32>
    %40 = stablehlo.add %38, %39 : tensor<2x6x8xf32>
    %41 = stablehlo.abs %34#2 : tensor<2x6x8xf32>
    %cst_12 = stablehlo.constant dense<1.500000e+00> : tensor<f32>
    %42 = stablehlo.broadcast_in_dim %cst_12, dims = [] : (tensor<f32>) -> tensor<2x6x8xf32>
    %43 = stablehlo.power %41, %42 : tensor<2x6x8xf32>
    %44 = stablehlo.log_plus_one %43 : tensor<2x6x8xf32>
    %45 = stablehlo.subtract %40, %44 : tensor<2x6x8xf32>
    %46 = stablehlo.negate %34#2 : tensor<2x6x8xf32>
    %47 = stablehlo.multiply %46, %34#2 : tensor<2x6x8xf32>
    %48 = stablehlo.exponential_minus_one %47 : tensor<2x6x8xf32>
    %49 = stablehlo.add %45, %48 : tensor<2x6x8xf32>
    %c_13 = stablehlo.constant dense<0> : tensor<i32>
    %50 = stablehlo.broadcast_in_dim %c_13, dims = [] : (tensor<i32>) -> tensor<1xi32>
    %51 = stablehlo.broadcast_in_dim %arg0, dims = [1] : (tensor<8xf32>) -> tensor<2x8xf32>
    %52 = "stablehlo.scatter"(%49, %50, %51) <{indices_are_sorted = true, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0, 1], inserted_window_dims = [1], scatter_dims_to_operand_dims = [1]>, unique_indices = true}> ({
    ^bb0(%arg5: tensor<f32> loc("scatter-add:"(#loc40)), %arg6: tensor<f32> loc("scatter-add:"(#loc40))):
      %97 = stablehlo.add %arg5, %arg6 : tensor<f32>
      stablehlo.return %97 : tensor<f32>
    }) : (tensor<2x6x8xf32>, tensor<1xi32>, tensor<2x8xf32>) -> tensor<2x6x8xf32>
    %cst_14 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %53 = stablehlo.reduce(%52 init: %cst_14) applies stablehlo.add across dimensions = [0, 1, 2] : (tensor<2x6x8xf32>, tensor<f32>) -> tensor<f32>
    %cst_15 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %54 = stablehlo.compare GT, %53, %cst_15, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %55 = stablehlo.convert %54 : (tensor<i1>) -> tensor<i32>
    %56 = "stablehlo.case"(%55) ({
      %cst_28 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
      %97 = stablehlo.broadcast_in_dim %cst_28, dims = [] : (tensor<f32>) -> tensor<2x6x8xf32>
      %98 = stablehlo.divide %52, %97 : tensor<2x6x8xf32>
      stablehlo.return %98 : tensor<2x6x8xf32>
    }, {
      %cst_28 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
      %97 = stablehlo.broadcast_in_dim %cst_28, dims = [] : (tensor<f32>) -> tensor<2x6x8xf32>
      %98 = stablehlo.multiply %52, %97 : tensor<2x6x8xf32>
      stablehlo.return %98 : tensor<2x6x8xf32>
    }) : (tensor<i32>) -> tensor<2x6x8xf32>
    %c_16 = stablehlo.constant dense<-3> : tensor<i32>
    %c_17 = stablehlo.constant dense<3> : tensor<i32>
    %57 = call @clip(%56, %c_16, %c_17) : (tensor<2x6x8xf32>, tensor<i32>, tensor<i32>) -> tensor<2x6x8xf32>
    %58 = call @_flip(%57) : (tensor<2x6x8xf32>) -> tensor<2x6x8xf32>
    %59 = call @_roll_static(%56) : (tensor<2x6x8xf32>) -> tensor<2x6x8xf32>
    %60 = stablehlo.add %58, %59 : tensor<2x6x8xf32>
    %cst_18 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %61 = stablehlo.broadcast_in_dim %cst_18, dims = [] : (tensor<f32>) -> tensor<2x6x8xf32>
    %62 = stablehlo.multiply %61, %56 : tensor<2x6x8xf32>
    %cst_19 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %63 = stablehlo.broadcast_in_dim %cst_19, dims = [] : (tensor<f32>) -> tensor<2x6x8xf32>
    %64 = stablehlo.add %63, %62 : tensor<2x6x8xf32>
    %cst_20 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %65 = stablehlo.reduce(%64 init: %cst_20) applies stablehlo.multiply across dimensions = [2] : (tensor<2x6x8xf32>, tensor<f32>) -> tensor<2x6xf32>
    %66 = stablehlo.broadcast_in_dim %65, dims = [0, 1] : (tensor<2x6xf32>) -> tensor<2x6x1xf32>
    %67 = stablehlo.broadcast_in_dim %66, dims = [0, 1, 2] : (tensor<2x6x1xf32>) -> tensor<2x6x8xf32>
    %68 = stablehlo.add %60, %67 : tensor<2x6x8xf32>
    %cst_21 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %69 = stablehlo.broadcast_in_dim %cst_21, dims = [] : (tensor<f32>) -> tensor<2x6x8xf32>
    %70 = stablehlo.maximum %68, %69 : tensor<2x6x8xf32>
    %71 = stablehlo.add %68, %70 : tensor<2x6x8xf32>
    %72 = call @round(%68) : (tensor<2x6x8xf32>) -> tensor<2x6x8xf32>
    %73 = stablehlo.add %71, %72 : tensor<2x6x8xf32>
    %74 = stablehlo.floor %68 : tensor<2x6x8xf32>
    %75 = stablehlo.add %73, %74 : tensor<2x6x8xf32>
    %cst_22 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
    %76 = call @remainder(%68, %cst_22) : (tensor<2x6x8xf32>, tensor<f32>) -> tensor<2x6x8xf32>
    %77 = stablehlo.add %75, %76 : tensor<2x6x8xf32>
    %cst_23 = stablehlo.constant dense<0x7F800000> : tensor<f32>
    %78 = stablehlo.reduce(%68 init: %cst_23) applies stablehlo.minimum across dimensions = [1] : (tensor<2x6x8xf32>, tensor<f32>) -> tensor<2x8xf32>
    %79 = stablehlo.broadcast_in_dim %78, dims = [0, 2] : (tensor<2x8xf32>) -> tensor<2x1x8xf32>
    %80 = stablehlo.broadcast_in_dim %79, dims = [0, 1, 2] : (tensor<2x1x8xf32>) -> tensor<2x6x8xf32>
    %81 = stablehlo.add %77, %80 : tensor<2x6x8xf32>
    %cst_24 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %82 = stablehlo.broadcast_in_dim %cst_24, dims = [] : (tensor<f32>) -> tensor<2x6x8xf32>
    %83 = stablehlo.multiply %82, %81 : tensor<2x6x8xf32>
    %84 = stablehlo.negate %81 : tensor<2x6x8xf32>
    %cst_25 = stablehlo.constant dense<0.707106769> : tensor<f32>
    %85 = stablehlo.broadcast_in_dim %cst_25, dims = [] : (tensor<f32>) -> tensor<2x6x8xf32>
    %86 = stablehlo.multiply %84, %85 : tensor<2x6x8xf32>
    %87 = chlo.erfc %86 : tensor<2x6x8xf32> -> tensor<2x6x8xf32>
    %88 = stablehlo.multiply %83, %87 : tensor<2x6x8xf32>
    %89 = stablehlo.transpose %arg2, dims = [1, 0] : (tensor<16x8xf32>) -> tensor<8x16xf32>
    %90 = stablehlo.dot_general %88, %89, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x6x8xf32>, tensor<8x16xf32>) -> tensor<2x6x16xf32>
    %91 = call @log_softmax(%90) : (tensor<2x6x16xf32>) -> tensor<2x6x16xf32>
    %92 = stablehlo.broadcast_in_dim %arg4, dims = [0, 1] : (tensor<2x6xi32>) -> tensor<2x6x1xi32>
    %93 = call @take_along_axis(%91, %92) : (tensor<2x6x16xf32>, tensor<2x6x1xi32>) -> tensor<2x6x1xf32>
    %cst_26 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %94 = stablehlo.reduce(%93 init: %cst_26) applies stablehlo.add across dimensions = [0, 1, 2] : (tensor<2x6x1xf32>, tensor<f32>) -> tensor<f32>
    %cst_27 = stablehlo.constant dense<1.200000e+01> : tensor<f32>
    %95 = stablehlo.divide %94, %cst_27 : tensor<f32>
    %96 = stablehlo.negate %95 : tensor<f32>
    return %96 : tensor<f32>
  }
  func.func private @dynamic_index_in_dim(%arg0: tensor<6x2x8xf32>, %arg1: tensor<i32>) -> tensor<2x8xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.dynamic_slice %arg0, %arg1, %c, %c_0, sizes = [1, 2, 8] : (tensor<6x2x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x8xf32>
    %1 = stablehlo.reshape %0 : (tensor<1x2x8xf32>) -> tensor<2x8xf32>
    return %1 : tensor<2x8xf32>
  }
  func.func private @closed_call(%arg0: tensor<8x8xf32>, %arg1: tensor<2x8xf32>, %arg2: tensor<2x8xf32>) -> (tensor<2x8xf32>, tensor<2x8xf32>) {
    %0 = stablehlo.dot_general %arg2, %arg0, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
    %cst = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x8xf32>
    %2 = stablehlo.multiply %1, %arg1 : tensor<2x8xf32>
    %3 = stablehlo.add %0, %2 : tensor<2x8xf32>
    %4 = stablehlo.tanh %3 : tensor<2x8xf32>
    return %4, %4 : tensor<2x8xf32>, tensor<2x8xf32>
  }
  func.func private @dynamic_update_index_in_dim(%arg0: tensor<6x2x8xf32>, %arg1: tensor<2x8xf32>, %arg2: tensor<i32>) -> tensor<6x2x8xf32> {
    %0 = stablehlo.broadcast_in_dim %arg1, dims = [1, 2] : (tensor<2x8xf32>) -> tensor<1x2x8xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %1 = stablehlo.dynamic_update_slice %arg0, %0, %arg2, %c, %c_0 : (tensor<6x2x8xf32>, tensor<1x2x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<6x2x8xf32>
    return %1 : tensor<6x2x8xf32>
  }
  func.func private @_where(%arg0: tensor<6x6xi1>, %arg1: tensor<2x6x6xf32>, %arg2: tensor<f32>) -> tensor<2x6x6xf32> {
    %0 = stablehlo.convert %arg2 : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %arg0, dims = [1, 2] : (tensor<6x6xi1>) -> tensor<2x6x6xi1>
    %2 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<2x6x6xf32>
    %3 = stablehlo.select %1, %arg1, %2 : tensor<2x6x6xi1>, tensor<2x6x6xf32>
    return %3 : tensor<2x6x6xf32>
  }
  func.func private @cumsum(%arg0: tensor<2x6x8xf32>) -> tensor<2x6x8xf32> {
    %0 = call @cumsum_0(%arg0) : (tensor<2x6x8xf32>) -> tensor<2x6x8xf32>
    return %0 : tensor<2x6x8xf32>
  }
  func.func private @cumsum_0(%arg0: tensor<2x6x8xf32>) -> tensor<2x6x8xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<f32>
    %1 = "stablehlo.reduce_window"(%arg0, %0) <{base_dilations = array<i64: 1, 1, 1>, padding = dense<[[0, 0], [5, 0], [0, 0]]> : tensor<3x2xi64>, window_dilations = array<i64: 1, 1, 1>, window_dimensions = array<i64: 1, 6, 1>, window_strides = array<i64: 1, 1, 1>}> ({
    ^bb0(%arg1: tensor<f32> loc("reduce_window_sum:"(#loc83)), %arg2: tensor<f32> loc("reduce_window_sum:"(#loc83))):
      %2 = stablehlo.add %arg1, %arg2 : tensor<f32>
      stablehlo.return %2 : tensor<f32>
    }) : (tensor<2x6x8xf32>, tensor<f32>) -> tensor<2x6x8xf32>
    return %1 : tensor<2x6x8xf32>
  }
  func.func private @closed_call_1(%arg0: tensor<i32>, %arg1: tensor<2x6x8xf32>) -> (tensor<i32>, tensor<2x6x8xf32>) {
    %c = stablehlo.constant dense<1> : tensor<i32>
    %0 = stablehlo.add %arg0, %c : tensor<i32>
    %cst = stablehlo.constant dense<0.899999976> : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x6x8xf32>
    %2 = stablehlo.multiply %arg1, %1 : tensor<2x6x8xf32>
    %3 = stablehlo.sine %arg1 : tensor<2x6x8xf32>
    %c_0 = stablehlo.constant dense<1> : tensor<i32>
    %4 = stablehlo.add %arg0, %c_0 : tensor<i32>
    %5 = stablehlo.convert %4 : (tensor<i32>) -> tensor<f32>
    %6 = stablehlo.broadcast_in_dim %5, dims = [] : (tensor<f32>) -> tensor<2x6x8xf32>
    %7 = stablehlo.multiply %3, %6 : tensor<2x6x8xf32>
    %cst_1 = stablehlo.constant dense<8.000000e+00> : tensor<f32>
    %8 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<2x6x8xf32>
    %9 = stablehlo.divide %7, %8 : tensor<2x6x8xf32>
    %10 = stablehlo.add %2, %9 : tensor<2x6x8xf32>
    return %0, %10 : tensor<i32>, tensor<2x6x8xf32>
  }
  func.func private @argmax(%arg0: tensor<2x6x8xf32> loc("jit(mixture)"(#loc246))) -> tensor<2x6xi32> {
    %0 = stablehlo.iota dim = 2 : tensor<2x6x8xi32>
    %cst = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %1:2 = stablehlo.reduce(%arg0 init: %cst), (%0 init: %c) across dimensions = [2] : (tensor<2x6x8xf32>, tensor<2x6x8xi32>, tensor<f32>, tensor<i32>) -> (tensor<2x6xf32>, tensor<2x6xi32>)
     reducer(%arg1: tensor<f32> loc("reduce:"(#loc92)), %arg3: tensor<f32> loc("reduce:"(#loc92))) (%arg2: tensor<i32> loc("reduce:"(#loc92)), %arg4: tensor<i32> loc("reduce:"(#loc92)))  {
      %2 = stablehlo.compare GT, %arg1, %arg3, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %3 = stablehlo.compare NE, %arg1, %arg1, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %4 = stablehlo.or %2, %3 : tensor<i1>
      %5 = stablehlo.compare EQ, %arg1, %arg3, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %6 = stablehlo.compare LT, %arg2, %arg4, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %7 = stablehlo.and %5, %6 : tensor<i1>
      %8 = stablehlo.or %4, %7 : tensor<i1>
      %9 = stablehlo.select %4, %arg1, %arg3 : tensor<i1>, tensor<f32>
      %10 = stablehlo.select %8, %arg2, %arg4 : tensor<i1>, tensor<i32>
      stablehlo.return %9, %10 : tensor<f32>, tensor<i32>
    }
    return %1#1 : tensor<2x6xi32>
  }
  func.func private @_one_hot(%arg0: tensor<2x6xi32>) -> tensor<2x6x8xf32> {
    %0 = stablehlo.broadcast_in_dim %arg0, dims = [0, 1] : (tensor<2x6xi32>) -> tensor<2x6x1xi32>
    %1 = stablehlo.iota dim = 2 : tensor<1x1x8xi32>
    %2 = stablehlo.broadcast_in_dim %0, dims = [0, 1, 2] : (tensor<2x6x1xi32>) -> tensor<2x6x8xi32>
    %3 = stablehlo.broadcast_in_dim %1, dims = [0, 1, 2] : (tensor<1x1x8xi32>) -> tensor<2x6x8xi32>
    %4 = stablehlo.compare EQ, %2, %3, SIGNED : (tensor<2x6x8xi32>, tensor<2x6x8xi32>) -> tensor<2x6x8xi1>
    %5 = stablehlo.convert %4 : (tensor<2x6x8xi1>) -> tensor<2x6x8xf32>
    return %5 : tensor<2x6x8xf32>
  }
  func.func private @softplus(%arg0: tensor<2x6x8xf32>) -> tensor<2x6x8xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x6x8xf32>
    %1 = stablehlo.maximum %arg0, %0 : tensor<2x6x8xf32>
    %2 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x6x8xf32>
    %3 = stablehlo.subtract %arg0, %2 : tensor<2x6x8xf32>
    %4 = stablehlo.compare NE, %3, %3, FLOAT : (tensor<2x6x8xf32>, tensor<2x6x8xf32>) -> tensor<2x6x8xi1>
    %5 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x6x8xf32>
    %6 = stablehlo.add %arg0, %5 : tensor<2x6x8xf32>
    %7 = stablehlo.abs %3 : tensor<2x6x8xf32>
    %8 = stablehlo.negate %7 : tensor<2x6x8xf32>
    %9 = stablehlo.exponential %8 : tensor<2x6x8xf32>
    %10 = stablehlo.log_plus_one %9 : tensor<2x6x8xf32>
    %11 = stablehlo.add %1, %10 : tensor<2x6x8xf32>
    %12 = stablehlo.select %4, %6, %11 : tensor<2x6x8xi1>, tensor<2x6x8xf32>
    return %12 : tensor<2x6x8xf32>
  }
  func.func private @clip(%arg0: tensor<2x6x8xf32>, %arg1: tensor<i32>, %arg2: tensor<i32>) -> tensor<2x6x8xf32> {
    %0 = stablehlo.convert %arg1 : (tensor<i32>) -> tensor<f32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<2x6x8xf32>
    %2 = stablehlo.maximum %1, %arg0 : tensor<2x6x8xf32>
    %3 = stablehlo.convert %arg2 : (tensor<i32>) -> tensor<f32>
    %4 = stablehlo.broadcast_in_dim %3, dims = [] : (tensor<f32>) -> tensor<2x6x8xf32>
    %5 = stablehlo.minimum %4, %2 : tensor<2x6x8xf32>
    return %5 : tensor<2x6x8xf32>
  }
  func.func private @_flip(%arg0: tensor<2x6x8xf32>) -> tensor<2x6x8xf32> {
    %0 = stablehlo.reverse %arg0, dims = [1] : tensor<2x6x8xf32>
    return %0 : tensor<2x6x8xf32>
  }
  func.func private @_roll_static(%arg0: tensor<2x6x8xf32>) -> tensor<2x6x8xf32> {
    %0 = stablehlo.slice %arg0 [0:2, 5:6, 0:8] : (tensor<2x6x8xf32>) -> tensor<2x1x8xf32>
    %1 = stablehlo.slice %arg0 [0:2, 0:5, 0:8] : (tensor<2x6x8xf32>) -> tensor<2x5x8xf32>
    %2 = stablehlo.concatenate %0, %1, dim = 1 : (tensor<2x1x8xf32>, tensor<2x5x8xf32>) -> tensor<2x6x8xf32>
    return %2 : tensor<2x6x8xf32>
  }
  func.func private @round(%arg0: tensor<2x6x8xf32>) -> tensor<2x6x8xf32> {
    %0 = stablehlo.round_nearest_even %arg0 : tensor<2x6x8xf32>
    return %0 : tensor<2x6x8xf32>
  }
  func.func private @remainder(%arg0: tensor<2x6x8xf32>, %arg1: tensor<f32>) -> tensor<2x6x8xf32> {
    %0 = stablehlo.convert %arg1 : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<2x6x8xf32>
    %2 = stablehlo.remainder %arg0, %1 : tensor<2x6x8xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %3 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x6x8xf32>
    %4 = stablehlo.compare NE, %2, %3, FLOAT : (tensor<2x6x8xf32>, tensor<2x6x8xf32>) -> tensor<2x6x8xi1>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %5 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<2x6x8xf32>
    %6 = stablehlo.compare LT, %2, %5, FLOAT : (tensor<2x6x8xf32>, tensor<2x6x8xf32>) -> tensor<2x6x8xi1>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %7 = stablehlo.compare LT, %0, %cst_1, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %8 = stablehlo.broadcast_in_dim %7, dims = [] : (tensor<i1>) -> tensor<2x6x8xi1>
    %9 = stablehlo.compare NE, %6, %8, UNSIGNED : (tensor<2x6x8xi1>, tensor<2x6x8xi1>) -> tensor<2x6x8xi1>
    %10 = stablehlo.and %9, %4 : tensor<2x6x8xi1>
    %11 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<2x6x8xf32>
    %12 = stablehlo.add %2, %11 : tensor<2x6x8xf32>
    %13 = stablehlo.select %10, %12, %2 : tensor<2x6x8xi1>, tensor<2x6x8xf32>
    return %13 : tensor<2x6x8xf32>
  }
  func.func private @log_softmax(%arg0: tensor<2x6x16xf32>) -> tensor<2x6x16xf32> {
    %cst = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.maximum across dimensions = [2] : (tensor<2x6x16xf32>, tensor<f32>) -> tensor<2x6xf32>
    %cst_0 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<2x6xf32>
    %2 = stablehlo.maximum %1, %0 : tensor<2x6xf32>
    %3 = stablehlo.broadcast_in_dim %2, dims = [0, 1] : (tensor<2x6xf32>) -> tensor<2x6x1xf32>
    %4 = stablehlo.broadcast_in_dim %3, dims = [0, 1, 2] : (tensor<2x6x1xf32>) -> tensor<2x6x16xf32>
    %5 = stablehlo.subtract %arg0, %4 : tensor<2x6x16xf32>
    %6 = stablehlo.exponential %5 : tensor<2x6x16xf32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %7 = stablehlo.reduce(%6 init: %cst_1) applies stablehlo.add across dimensions = [2] : (tensor<2x6x16xf32>, tensor<f32>) -> tensor<2x6xf32>
    %8 = stablehlo.broadcast_in_dim %7, dims = [0, 1] : (tensor<2x6xf32>) -> tensor<2x6x1xf32>
    %9 = stablehlo.log %8 : tensor<2x6x1xf32>
    %10 = stablehlo.broadcast_in_dim %9, dims = [0, 1, 2] : (tensor<2x6x1xf32>) -> tensor<2x6x16xf32>
    %11 = stablehlo.subtract %5, %10 : tensor<2x6x16xf32>
    return %11 : tensor<2x6x16xf32>
  }
  func.func private @take_along_axis(%arg0: tensor<2x6x16xf32>, %arg1: tensor<2x6x1xi32>) -> tensor<2x6x1xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<2x6x1xi32>
    %1 = stablehlo.compare LT, %arg1, %0, SIGNED : (tensor<2x6x1xi32>, tensor<2x6x1xi32>) -> tensor<2x6x1xi1>
    %c_0 = stablehlo.constant dense<16> : tensor<i32>
    %2 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<i32>) -> tensor<2x6x1xi32>
    %3 = stablehlo.add %arg1, %2 : tensor<2x6x1xi32>
    %4 = stablehlo.select %1, %3, %arg1 : tensor<2x6x1xi1>, tensor<2x6x1xi32>
    %5 = stablehlo.reshape %4 : (tensor<2x6x1xi32>) -> tensor<2x6x1x1xi32>
    %c_1 = stablehlo.constant dense<15> : tensor<1xi32>
    %c_2 = stablehlo.constant dense<0> : tensor<i32>
    %6 = stablehlo.broadcast_in_dim %c_2, dims = [] : (tensor<i32>) -> tensor<2x6x1x1xi32>
    %7 = stablehlo.compare GE, %5, %6, SIGNED : (tensor<2x6x1x1xi32>, tensor<2x6x1x1xi32>) -> tensor<2x6x1x1xi1>
    %8 = stablehlo.broadcast_in_dim %c_1, dims = [3] : (tensor<1xi32>) -> tensor<1x1x1x1xi32>
    %9 = stablehlo.broadcast_in_dim %8, dims = [0, 1, 2, 3] : (tensor<1x1x1x1xi32>) -> tensor<2x6x1x1xi32>
    %10 = stablehlo.compare LE, %5, %9, SIGNED : (tensor<2x6x1x1xi32>, tensor<2x6x1x1xi32>) -> tensor<2x6x1x1xi1>
    %11 = stablehlo.and %7, %10 : tensor<2x6x1x1xi1>
    %c_3 = stablehlo.constant dense<true> : tensor<i1>
    %12 = stablehlo.reduce(%11 init: %c_3) applies stablehlo.and across dimensions = [3] : (tensor<2x6x1x1xi1>, tensor<i1>) -> tensor<2x6x1xi1>
    %13 = "stablehlo.gather"(%arg0, %5) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [2], operand_batching_dims = [0, 1], start_indices_batching_dims = [0, 1], start_index_map = [2], index_vector_dim = 3>, indices_are_sorted = false, slice_sizes = array<i64: 1, 1, 1>}> : (tensor<2x6x16xf32>, tensor<2x6x1x1xi32>) -> tensor<2x6x1xf32>
    %cst = stablehlo.constant dense<0x7FC00000> : tensor<f32>
    %14 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x6x1xf32>
    %15 = stablehlo.select %12, %13, %14 : tensor<2x6x1xi1>, tensor<2x6x1xf32>
    return %15 : tensor<2x6x1xf32>
  }
}
