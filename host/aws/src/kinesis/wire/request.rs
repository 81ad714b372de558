//! Requests in CBOR: any structure of the SDK, member by member.

use aws_smithy_schema::Schema;
use aws_smithy_schema::codec::FinishSerializer;
use aws_smithy_schema::serde::{SerdeError, SerializableStruct, ShapeSerializer};
use aws_smithy_types::{BigDecimal, BigInteger, Blob, DateTime, Document};
use shardmill_wire::CborWriter;

/// The body of `input`.
pub(super) fn cbor(
    input: &dyn SerializableStruct,
    schema: &Schema<'_>,
) -> Result<Vec<u8>, SerdeError> {
    let mut body = Body::default();
    body.write_struct(schema, input)?;
    Ok(body.finish())
}

#[derive(Debug, Default)]
pub(super) struct Body {
    writer: CborWriter,
}

impl Body {
    /// A member's name goes before its value; elements and the whole have none.
    fn name(&mut self, schema: &Schema<'_>) {
        if let Some(name) = schema.member_name() {
            self.writer.text(name);
        }
    }

    fn number(&mut self, schema: &Schema<'_>, number: i64) {
        self.name(schema);
        self.writer.integer(number);
    }
}

impl FinishSerializer for Body {
    fn finish(self) -> Vec<u8> {
        self.writer.finish()
    }
}

impl ShapeSerializer for Body {
    fn write_struct(
        &mut self,
        schema: &Schema<'_>,
        value: &dyn SerializableStruct,
    ) -> Result<(), SerdeError> {
        self.name(schema);
        self.writer.open_map();
        value.serialize_members(self)?;
        self.writer.end();
        Ok(())
    }

    fn write_list(
        &mut self,
        schema: &Schema<'_>,
        write_elements: &dyn Fn(&mut dyn ShapeSerializer) -> Result<(), SerdeError>,
    ) -> Result<(), SerdeError> {
        self.name(schema);
        self.writer.open_list();
        write_elements(self)?;
        self.writer.end();
        Ok(())
    }

    fn write_boolean(&mut self, schema: &Schema<'_>, value: bool) -> Result<(), SerdeError> {
        self.name(schema);
        self.writer.boolean(value);
        Ok(())
    }

    fn write_byte(&mut self, schema: &Schema<'_>, value: i8) -> Result<(), SerdeError> {
        self.number(schema, i64::from(value));
        Ok(())
    }

    fn write_short(&mut self, schema: &Schema<'_>, value: i16) -> Result<(), SerdeError> {
        self.number(schema, i64::from(value));
        Ok(())
    }

    fn write_integer(&mut self, schema: &Schema<'_>, value: i32) -> Result<(), SerdeError> {
        self.number(schema, i64::from(value));
        Ok(())
    }

    fn write_long(&mut self, schema: &Schema<'_>, value: i64) -> Result<(), SerdeError> {
        self.number(schema, value);
        Ok(())
    }

    fn write_string(&mut self, schema: &Schema<'_>, value: &str) -> Result<(), SerdeError> {
        self.name(schema);
        self.writer.text(value);
        Ok(())
    }

    fn write_blob(&mut self, schema: &Schema<'_>, value: Blob) -> Result<(), SerdeError> {
        self.name(schema);
        self.writer.bytes(value.as_ref());
        Ok(())
    }

    fn write_timestamp(&mut self, schema: &Schema<'_>, value: &DateTime) -> Result<(), SerdeError> {
        let ms = value
            .to_millis()
            .map_err(|error| SerdeError::custom(error.to_string()))?;
        self.name(schema);
        self.writer.time_ms(ms);
        Ok(())
    }

    fn write_null(&mut self, schema: &Schema<'_>) -> Result<(), SerdeError> {
        self.name(schema);
        self.writer.null();
        Ok(())
    }

    // No request of Kinesis that carries data has any of these.

    fn write_map(
        &mut self,
        _: &Schema<'_>,
        _: &dyn Fn(&mut dyn ShapeSerializer) -> Result<(), SerdeError>,
    ) -> Result<(), SerdeError> {
        Err(SerdeError::unsupported("a map in a request"))
    }

    fn write_float(&mut self, _: &Schema<'_>, _: f32) -> Result<(), SerdeError> {
        Err(SerdeError::unsupported("a fraction in a request"))
    }

    fn write_double(&mut self, _: &Schema<'_>, _: f64) -> Result<(), SerdeError> {
        Err(SerdeError::unsupported("a fraction in a request"))
    }

    fn write_big_integer(&mut self, _: &Schema<'_>, _: &BigInteger) -> Result<(), SerdeError> {
        Err(SerdeError::unsupported("a large number in a request"))
    }

    fn write_big_decimal(&mut self, _: &Schema<'_>, _: &BigDecimal) -> Result<(), SerdeError> {
        Err(SerdeError::unsupported("a large number in a request"))
    }

    fn write_document(&mut self, _: &Schema<'_>, _: &Document) -> Result<(), SerdeError> {
        Err(SerdeError::unsupported("a document in a request"))
    }
}
