package layoutopt.tests;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.InterpretedMutableProjection;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import scala.collection.JavaConverters;

/** Evaluates conditions by Spark's own interpreter, each on each row, so that one that fails hides no other. */
public final class EachRow {
  public static final byte FALSE = 0, TRUE = 1, NULL = 2, FAILED = 3;

  /** Returns the values of an optimised projection of conditions over local rows, row by row. */
  public byte[] evaluate(LogicalPlan plan) {
    List<Object[]> rows = rows(plan);
    int columns = plan.output().size();
    byte[] values = new byte[rows.size() * columns];
    for (int row = 0; row < rows.size(); row++) {
      Object[] cells = (Object[]) rows.get(row); // Janino knows no lists of arrays
      for (int column = 0; column < columns; column++) {
        values[row * columns + column] = code(cells[column]);
      }
    }
    return values;
  }

  private static final Object FAILED_VALUE = new Object();

  private static byte code(Object value) {
    if (value == null) return NULL;
    if (value == FAILED_VALUE) return FAILED;
    return ((Boolean) value).booleanValue() ? TRUE : FALSE;
  }

  private static List<Object[]> rows(LogicalPlan plan) {
    List<Object[]> rows = new ArrayList<Object[]>();
    List output = JavaConverters.seqAsJavaList(plan.output());
    if (plan instanceof LocalRelation) {
      for (Object row : JavaConverters.seqAsJavaList(((LocalRelation) plan).data())) {
        Object[] values = new Object[output.size()];
        for (int at = 0; at < values.length; at++) {
          values[at] = ((InternalRow) row).get(at, ((Expression) output.get(at)).dataType());
        }
        rows.add(values);
      }
      return rows;
    }
    if (!(plan instanceof Project)) throw new IllegalArgumentException("no projection of local rows: " + plan);
    Project project = (Project) plan;
    List expressions = JavaConverters.seqAsJavaList(project.projectList());
    List<InterpretedMutableProjection> evaluators = new ArrayList<InterpretedMutableProjection>();
    for (Object expression : expressions) {
      List one = new ArrayList();
      one.add(expression);
      evaluators.add(new InterpretedMutableProjection(
          JavaConverters.asScalaBuffer(one).toSeq(), project.child().output()));
    }
    for (Object row : rows(project.child())) {
      Object[] input = (Object[]) row;
      Object[] values = new Object[expressions.size()];
      for (int at = 0; at < values.length; at++) {
        values[at] = value((InterpretedMutableProjection) evaluators.get(at), (Expression) expressions.get(at), input);
      }
      rows.add(values);
    }
    return rows;
  }

  private static Object value(InterpretedMutableProjection evaluator, Expression expression, Object[] input) {
    for (Object cell : input) if (cell == FAILED_VALUE) return FAILED_VALUE; // what depends on it has no value either
    try {
      return evaluator.apply(new org.apache.spark.sql.catalyst.expressions.GenericInternalRow(input))
          .copy().get(0, expression.dataType());
    } catch (Exception error) { // in ANSI mode
      return FAILED_VALUE;
    }
  }
}
